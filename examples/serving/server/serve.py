"""A real model server: llama.cpp, from the wheel xllamacpp. Usage: serve.py MODEL.gguf [--rope-base 8000]

It listens on SEATRIAL_PORT. API_KEY, if set, is the bearer token that it wants.
`--rope-base` other than the model's own is a fault to look for: the answers are fluent, and wrong."""

import argparse
import os
import threading

import xllamacpp

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--rope-base", type=float, default=0.0)
arguments = parser.parse_args()

parameters = xllamacpp.CommonParams()
parameters.model.path = arguments.model
parameters.hostnames = [os.environ.get("HOST", "127.0.0.1")]
parameters.port = int(os.environ["SEATRIAL_PORT"])
parameters.n_ctx = 8 * 512
parameters.n_parallel = 8
parameters.cpuparams.n_threads = 1
parameters.endpoint_metrics = True
parameters.warmup = False
parameters.rope_freq_base = arguments.rope_base
if os.environ.get("API_KEY"):
    parameters.api_keys = [os.environ["API_KEY"]]

server = xllamacpp.Server(parameters)
print(f"listening on {server.listening_address}", flush=True)
threading.Event().wait()
