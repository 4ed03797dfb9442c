"""Prompts of a load, in files of each format."""

import json

JSONL = b"""\
{"prompt": "one", "max_tokens": 7}

{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "two"}]}
{"turns": ["three", "and then?", "thanks"]}
"""
CSV = b'id,prompt,max_tokens\n1,"one, two\nthree",7\n2,four,\n'
SHAREGPT = json.dumps(
    [
        {"id": "a", "conversations": [{"from": "human", "value": "hi ] }"}, {"from": "gpt", "value": "ho"}]},
        {
            "id": "b",
            "conversations": [
                {"from": "human", "value": 'a "quote" \\'},
                {"from": "gpt", "value": "b"},
                {"from": "user", "value": "c"},
            ],
        },
    ],
    indent=1,
).encode()
MOONCAKE = b"""\
{"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 4500, "input_length": 520, "output_length": 6, "hash_ids": [1, 3]}
"""
FILES = {"prompts.jsonl": JSONL, "prompts.csv": CSV, "sharegpt.json": SHAREGPT, "trace.jsonl": MOONCAKE}
