"""What is expected of the products of somebody else's graph."""

from quantflow.formats.onnx.products import Product, expectation_of


def product(constant: str, elements: int, *, quantized: bool = True) -> Product:
    return Product(constant, "int8" if quantized else "float", 8 if quantized else 32, None, elements)


def test_channels_apart_and_a_second_product_do_not_hide_that_a_unit_is_int8() -> None:
    found = expectation_of(
        (
            product("q", 100),
            product("q", 7, quantized=False),
            product("down", 60),
            product("down", 60),
            product("head", 40, quantized=False),
            product("little", 3),
            product("little", 90, quantized=False),
        )
    ).units
    assert [(unit.computes, unit.elements, unit.floating_elements) for unit in found.values()] == [
        ("int8", 100, 7),
        ("int8", 60, 0),
        ("float", 40, 40),
        ("float", 90, 90),
    ]
