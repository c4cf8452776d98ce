"""Saves and loads the tensors of a checkpoint by other programs, for swath-checkpoint --peers.

    python3 peers.py DIRECTORY

It is driven through its standard input and output, a line of JSON each way, so that its turns and
ours can alternate. The first line it reads is {"tensors": [{"name", "dtype", "shape", "bytes"}],
"source_bytes": N}; it answers with what it has: {"python", "peers": [{"name", "version"}],
"missing": [{"name", "reason"}]}. Then each request {"peer": NAME, "what": "save first" | "save" |
"load"} is answered by {"seconds", "cpu_seconds", "peak_bytes"} or {"error"}. It ends with its input.

What counts, for each of them:

- save first: to a name that is not there, up to the return of fsync of every file and of the
  directory. Nothing is preallocated: none of the programs does that.
- save: the same over the files of the save before, which the programs cut to nothing or replace.
- load: until every byte is in memory, from files that were dropped from the page cache first. A
  program that only maps a file is made to read it: one byte of every page is looked at.

Tensors are slices of one buffer, as ours are. bf16 needs torch; without it, safetensors gets f16 of
the same size. torch.dcp runs with one thread, without a process group, into tensors that are there.
"""

import importlib
import json
import os
import shutil
import signal
import sys
import time

PAGE_BYTES = 4096
FILL_BYTES = 1 << 24


def paths_below(path):
    if os.path.isfile(path):
        return [path]
    return [os.path.join(place, name) for place, _, names in os.walk(path) for name in names]


def sync(path):
    """Makes the files and the directories they lie in durable."""
    files = paths_below(path)
    folders = {os.path.dirname(file) for file in files} | {os.path.dirname(path)}
    for name in files + sorted(folders):
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def forget(path):
    """Drops the files from the page cache."""
    for name in paths_below(path):
        descriptor = os.open(name, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def peak_bytes(reset=False):
    """The most memory used since the last reset; none where the kernel does not tell."""
    try:
        if reset:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return None


class TorchSave:
    name = "torch.save"

    def __init__(self, tensors):
        self.torch = importlib.import_module("torch")
        self.version = self.torch.__version__
        self.tensors = torch_tensors(self.torch, *tensors)

    def save(self, path):
        self.torch.save(self.tensors, path)

    def target(self):
        return None

    def load(self, path, _):
        return self.torch.load(path, weights_only=True, mmap=False)


class Safetensors:
    name = "safetensors"

    def __init__(self, tensors):
        self.version = importlib.import_module("safetensors").__version__
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            self.files = importlib.import_module("safetensors.numpy")
            self.tensors = numpy_tensors(importlib.import_module("numpy"), *tensors)
            self.version += " (numpy)"
        else:
            self.files = importlib.import_module("safetensors.torch")
            self.tensors = torch_tensors(torch, *tensors)
            self.version += " (torch)"

    def save(self, path):
        self.files.save_file(self.tensors, path)

    def target(self):
        return None

    def load(self, path, _):
        return self.files.load_file(path)


class Dcp:
    name = "torch.dcp"

    def __init__(self, tensors):
        self.torch = importlib.import_module("torch")
        self.dcp = importlib.import_module("torch.distributed.checkpoint")
        self.version = self.torch.__version__
        self.tensors = torch_tensors(self.torch, *tensors)

    def save(self, path):
        writer = self.dcp.FileSystemWriter(
            path, single_file_per_rank=True, sync_files=True, thread_count=1
        )
        self.dcp.save(self.tensors, storage_writer=writer)

    def target(self):
        new = self.torch.zeros
        return {name: new(it.shape, dtype=it.dtype) for name, it in self.tensors.items()}

    def load(self, path, target):
        self.dcp.load(target, storage_reader=self.dcp.FileSystemReader(path))
        return target


def torch_tensors(torch, data, specs):
    types = {"BF16": torch.bfloat16, "F32": torch.float32}

    def make(dtype, count, offset):
        return torch.frombuffer(data, dtype=dtype, count=count, offset=offset)

    return slices(data, specs, types, make)


def numpy_tensors(numpy, data, specs):
    types = {"BF16": numpy.float16, "F32": numpy.float32}

    def make(dtype, count, offset):
        return numpy.frombuffer(data, dtype=dtype, count=count, offset=offset)

    return slices(data, specs, types, make)


def slices(data, specs, types, make):
    """The tensors, each from a place of its own in `data`."""
    tensors, next_byte, turns = {}, 0, 0
    for spec in specs:
        size = spec["bytes"]
        if next_byte + size > len(data):
            turns += 1
            next_byte = turns * PAGE_BYTES % (len(data) - size + 1) // PAGE_BYTES * PAGE_BYTES
        count = size // (2 if spec["dtype"] == "BF16" else 4)
        flat = make(types[spec["dtype"]], count, next_byte)
        tensors[spec["name"]] = flat.reshape(spec["shape"])
        next_byte += -(-size // PAGE_BYTES) * PAGE_BYTES
    return tensors


def touch(loaded):
    """Reads one byte of every page of what was loaded."""
    for tensor in loaded.values():
        flat = tensor.reshape(-1)
        if hasattr(flat, "numpy"):
            import torch

            flat = flat.view(torch.uint8)
        else:
            flat = flat.view("uint8")
        flat[::PAGE_BYTES].sum()


def carry_out(peer, what, path):
    target = None
    if what == "load":
        forget(path)
        target = peer.target()
    elif what == "save first":
        remove(path)
    before = peak_bytes(reset=True)
    began, cpu_began = time.perf_counter(), time.process_time()
    if what == "load":
        loaded = peer.load(path, target)
        touch(loaded)
    else:
        peer.save(path)
        sync(path)
    seconds = time.perf_counter() - began
    cpu_seconds = time.process_time() - cpu_began
    peak = peak_bytes()
    if what == "load":
        # Its space is needed by the next one.
        del loaded, target
        remove(path)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_bytes": None if None in (before, peak) else max(0, peak - before),
    }


def main():
    # An interrupt is for the program that started this one, which then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    directory = sys.argv[1]
    # Whatever a library prints must not come between the answers.
    output, sys.stdout = sys.stdout, sys.stderr

    def answer(value):
        output.write(json.dumps(value) + "\n")
        output.flush()

    spec = json.loads(sys.stdin.readline())
    data = None
    peers, missing = {}, []
    for kind in (TorchSave, Safetensors, Dcp):
        try:
            importlib.import_module("safetensors" if kind is Safetensors else "torch")
            if data is None:
                data = bytearray()
                while len(data) < spec["source_bytes"]:
                    data += os.urandom(min(FILL_BYTES, spec["source_bytes"] - len(data)))
            peers[kind.name] = kind((data, spec["tensors"]))
        except Exception as error:
            missing.append({"name": kind.name, "reason": str(error)})
    answer(
        {
            "python": sys.version.split()[0],
            "peers": [{"name": it.name, "version": it.version} for it in peers.values()],
            "missing": missing,
        }
    )
    for line in sys.stdin:
        request = json.loads(line)
        peer = peers[request["peer"]]
        try:
            answer(carry_out(peer, request["what"], os.path.join(directory, peer.name)))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
