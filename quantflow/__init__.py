"""QuantFlow: quantize a language model, with the evidence on which to ship or refuse it.

import quantflow

result = quantflow.run(quantflow.load_recipe("recipes/quickstart.yaml"))
print(result.report.verdict, result.report_folder)
"""

from quantflow.errors import QuantFlowError
from quantflow.pipeline.run import RunResult, run
from quantflow.recipe.load import load_recipe
from quantflow.recipe.schema import Recipe
from quantflow.report.model import Report

__all__ = ["QuantFlowError", "Recipe", "Report", "RunResult", "load_recipe", "run"]
