import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "calib_data"


def test_the_sample_text_is_what_its_page_says() -> None:
    records = [
        json.loads(line)
        for path in sorted(FOLDER.rglob("*.jsonl"))
        if "tasks" not in path.parts
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len(records) == 810
    assert len({record["id"] for record in records}) == 810
    for record in records:
        assert ("text" in record) != ("messages" in record)
        roles = [message["role"] for message in record.get("messages", [])]
        assert roles[1:] == ["user", "assistant"] * (len(roles) // 2)
