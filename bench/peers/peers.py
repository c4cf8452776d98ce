"""Saves and loads the tensors of a checkpoint by other programs, for swath-checkpoint --peers.

    python3 peers.py DIRECTORY

It is driven through its standard input and output, a line of JSON each way, so that its turns and
ours can alternate. The first line it reads is {"tensors": [{"name", "dtype", "shape", "bytes"}],
"source_bytes": N}; it answers with what it has: {"python", "peers": [{"name", "version"}],
"missing": [{"name", "reason"}]}. Then each request {"peer": NAME, "what": WHAT} is answered by
{"seconds", "cpu_seconds", "peak_bytes", "device_ratio", "how"} or {"error"}; "remove" removes what
the peer has saved and is answered by {}. It ends with its input, or when whoever started it ends.

What counts, for each of them, on one thread:

- save, new file: to a name that is not there, up to the return of fsync of every file and of the
  directories they lie in. Nothing is preallocated: none of the programs does that.
- save again: the same over the files of the save before. Whether the program writes into these
  files or makes new ones in their place is looked at, and told as "how".
- load: into tensors that are there and whose every page was touched, from files that were dropped
  from the page cache (posix_fadvise DONTNEED; they are clean, for they were fsynced). Where a
  program has no call for that, the way its users have: tensor by tensor, copied from a mapped file.
- load, new memory: into memory that the program gets for it, until every byte is there. A program
  that only maps a file is made to read it: one byte of every page is looked at.

How much of a load came from the device is taken from /proc/self/io and told as "device_ratio": a
load from the page cache is not comparable with direct I/O.

Tensors are slices of one buffer, as ours are: random bytes of the same types and shapes. bf16 needs
torch; without it, safetensors gets f16 of the same size. torch.dcp runs without a process group.
"""

import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import time
import warnings

PAGE_BYTES = 4096
FILL_BYTES = 1 << 24
PR_SET_PDEATHSIG = 1


class TorchSave:
    name = "torch.save"

    def __init__(self, tensors):
        self.torch = one_thread(importlib.import_module("torch"))
        self.version = self.torch.__version__
        self.tensors = torch_tensors(self.torch, *tensors)

    def save(self, path):
        self.torch.save(self.tensors, path)

    def load(self, path):
        return self.torch.load(path, weights_only=True, mmap=False)

    def target(self):
        return {name: self.torch.ones_like(it) for name, it in self.tensors.items()}

    def load_into(self, path, target):
        # What load_state_dict does with what it is given.
        mapped = self.torch.load(path, weights_only=True, mmap=True)
        for name, tensor in target.items():
            tensor.copy_(mapped[name])


class Safetensors:
    name = "safetensors"

    def __init__(self, tensors):
        safetensors = importlib.import_module("safetensors")
        self.safe_open = safetensors.safe_open
        try:
            self.arrays = one_thread(importlib.import_module("torch"))
        except ImportError:
            self.framework, self.arrays = "numpy", importlib.import_module("numpy")
            self.tensors = numpy_tensors(self.arrays, *tensors)
        else:
            self.framework = "torch"
            self.tensors = torch_tensors(self.arrays, *tensors)
        self.files = importlib.import_module("safetensors." + self.framework)
        self.version = f"{safetensors.__version__} ({self.framework})"

    def save(self, path):
        self.files.save_file(self.tensors, path)

    def load(self, path):
        return self.files.load_file(path)

    def target(self):
        return {name: self.arrays.ones_like(it) for name, it in self.tensors.items()}

    def load_into(self, path, target):
        with self.safe_open(path, "pt" if self.framework == "torch" else "np") as file:
            for name, tensor in target.items():
                tensor[...] = file.get_tensor(name)


class Dcp:
    name = "torch.dcp"

    def __init__(self, tensors):
        self.torch = one_thread(importlib.import_module("torch"))
        self.dcp = importlib.import_module("torch.distributed.checkpoint")
        self.version = self.torch.__version__
        self.tensors = torch_tensors(self.torch, *tensors)

    def save(self, path):
        writer = self.dcp.FileSystemWriter(
            path, single_file_per_rank=True, sync_files=True, thread_count=1
        )
        self.dcp.save(self.tensors, storage_writer=writer, no_dist=True)

    def load(self, path):
        target = {name: self.torch.empty_like(it) for name, it in self.tensors.items()}
        self.load_into(path, target)
        return target

    def target(self):
        return {name: self.torch.ones_like(it) for name, it in self.tensors.items()}

    def load_into(self, path, target):
        self.dcp.load(target, storage_reader=self.dcp.FileSystemReader(path), no_dist=True)


PEERS = (TorchSave, Safetensors, Dcp)


def one_thread(torch):
    torch.set_num_threads(1)
    return torch


def torch_tensors(torch, data, specs):
    types = {"BF16": torch.bfloat16, "F32": torch.float32}
    return slices(torch.frombuffer, types, data, specs)


def numpy_tensors(numpy, data, specs):
    types = {"BF16": numpy.float16, "F32": numpy.float32}
    return slices(numpy.frombuffer, types, data, specs)


def slices(from_buffer, types, data, specs):
    """The tensors, each from a place of its own in `data`. No two begin at one place: the programs
    take such for one tensor under two names."""
    tensors, next_byte, turns, begun = {}, 0, 0, set()
    for spec in specs:
        size = spec["bytes"]
        if next_byte + size > len(data):
            turns += 1
            next_byte = turns * PAGE_BYTES % (len(data) - size + 1) // PAGE_BYTES * PAGE_BYTES
        while next_byte in begun and next_byte + size + PAGE_BYTES <= len(data):
            next_byte += PAGE_BYTES
        begun.add(next_byte)
        dtype = types[spec["dtype"]]
        count = size // (2 if spec["dtype"] == "BF16" else 4)
        flat = from_buffer(data, dtype=dtype, count=count, offset=next_byte)
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


def paths_below(path):
    if not os.path.isdir(path):
        return [path] if os.path.exists(path) else []
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
    """Drops the files from the page cache. They are clean: see sync."""
    for name in paths_below(path):
        descriptor = os.open(name, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def identities(path):
    return {os.stat(name).st_ino for name in paths_below(path)}


def size_bytes(path):
    return sum(os.path.getsize(name) for name in paths_below(path))


def device_bytes():
    """What this process has read from devices so far; none where the kernel does not tell."""
    try:
        with open("/proc/self/io") as file:
            line = next(line for line in file if line.startswith("read_bytes:"))
        return int(line.split()[1])
    except (OSError, StopIteration, ValueError):
        return None


def is_mapped(path):
    """Whether this process has files mapped that lie there."""
    try:
        with open("/proc/self/maps") as file:
            return any(line.rstrip().endswith(tuple(paths_below(path))) for line in file)
    except OSError:
        return False


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


def give_memory_back():
    """So that new memory is new."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


def carry_out(peer, what, path):
    target, loaded, before_files = None, None, identities(path)
    give_memory_back()
    if what.startswith("load"):
        forget(path)
        if what == "load":
            target = peer.target()
    elif what == "save, new file":
        remove(path)
    before_memory, before_device = peak_bytes(reset=True), device_bytes()
    began, cpu_began = time.perf_counter(), time.process_time()
    if what == "load":
        peer.load_into(path, target)
    elif what == "load, new memory":
        loaded = peer.load(path)
        touch(loaded)
    else:
        peer.save(path)
        sync(path)
    seconds = time.perf_counter() - began
    cpu_seconds = time.process_time() - cpu_began
    peak, device = peak_bytes(), device_bytes()
    answer = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_bytes": None if None in (before_memory, peak) else max(0, peak - before_memory),
    }
    if what.startswith("load"):
        if what == "load":
            answer["how"] = "memory that is there"
        elif is_mapped(path):
            answer["how"] = "a mapped file, every page looked at"
        else:
            answer["how"] = "new memory"
        if None not in (before_device, device):
            answer["device_ratio"] = (device - before_device) / max(1, size_bytes(path))
    elif what == "save, new file":
        answer["how"] = "new file, not preallocated"
    elif before_files & identities(path):
        answer["how"] = "file cut to nothing, not preallocated"
    else:
        answer["how"] = "new file in its place, not preallocated"
    return answer


def main():
    # An interrupt is for the program that started this one, which then ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass
    directory = sys.argv[1]
    # Whatever a library prints must not come between the answers.
    output, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")

    def answer(value):
        output.write(json.dumps(value) + "\n")
        output.flush()

    spec = json.loads(sys.stdin.readline())
    data = None
    peers, missing = {}, []
    for kind in PEERS:
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
        peer, what = peers[request["peer"]], request["what"]
        path = os.path.join(directory, peer.name)
        try:
            if what == "remove":
                remove(path)
                answer({})
            else:
                answer(carry_out(peer, what, path))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
