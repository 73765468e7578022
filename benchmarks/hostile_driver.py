"""Logs that try to run something: what `mio2trace driver` offers of them is run by a shell that can run nothing else.

    python benchmarks/hostile_driver.py --count 10000 --seed 1

Each log has what a MIOpen log has, entries, descriptors, commands, level lines, layers and thread numbers, with
payloads for a shell in any of their fields. The lines that come out are run by ``sh`` in an empty folder, the search
path empty but for a ``MIOpenDriver`` that records its arguments. Exit 1 when anything else ran, a file appeared, an
argument is no number and no known word, or a character that steers a terminal came out on either stream.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from mio2trace.cli import cli

HARM = (
    "touch PWNED",
    "/usr/bin/touch PWNED",
    ":>PWNED",
    "echo x >PWNED",
    "exec /bin/sh -c '>PWNED'",
    "touch${IFS}PWNED",
)
SEPARATORS = (
    ";",
    "|",
    "&",
    "&&",
    "||",
    "\n",
    "\r",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x85",
    "\u2028",
    "\x00",
    " ",
    "\t",
    "\u00a0",
)
WRAPPERS = (
    "{0}{1}{0}", "$({1})", "`{1}`", "${{x:={1}}}", "'{0}{1}{0}'", '"{0}{1}{0}"', "\\{0}{1}{0}\\", "<({1})", ">PWNED",
    "<x", ">>PWNED", "2>PWNED", "* ?", "~", "#{0}{1}", "!{1}", "${{IFS}}", "$PATH", "{{a,b}}", "[a-z]*", "-o PWNED",
    "--exec={1}", "\x1b[31m{1}\x1b[0m", "\u202e{1}\u202c", "%0a{1}", "\\n{1}", "²", "٣", "１", "1e9{0}{1}", "0x10",
    "9" * 4301, "-1", "--", "-", "=", "$'\\n'{1}", "({1})", "{{ {1};}}", "1{0}{1}{0}:", ".", "/bin/touch", "1,2{0}{1}",
    "\x1b]0;x\x07", "\x9b31m",
)  # fmt: skip
ENTRIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("ConvolutionForward", {
        "alpha": "0x1", "xDesc": "{2, 6, 9, 8}, {432, 72, 8, 1}, packed, ", "x": "0x7f00aa00",
        "wDesc": "{10, 6, 3, 5}, {90, 15, 5, 1}, packed, ", "w": "0x7f00bb00",
        "convDesc": "conv2d, miopenConvolution, miopenPaddingDefault, {1, 0}, {2, 1}, {1, 1}, ", "algo": "1",
        "yDesc": "{2, 10, 5, 4}, {200, 20, 4, 1}, packed, ", "y": "0x7f00cc00", "workSpaceSize": "0"}),
    ("ConvolutionBackwardData", {
        "dyDesc": "2, 10, 5, 4", "wDesc": "10, 6, 3, 5", "convDesc": "1, 0, 2, 1, 1, 1, ", "algo": "1",
        "dxDesc": "2, 6, 9, 8"}),
    ("PoolingForward", {
        "poolDesc": "miopenPoolingMax, 3, 4, 1, 1, 2, 2, ", "xDesc": "{2, 6, 9, 8}, {432, 72, 8, 1}, packed, ",
        "yDesc": "{2, 6, 5, 4}, {120, 20, 4, 1}, packed, ", "do_backward": "0"}),
    ("BatchNormalizationForwardTraining", {
        "bn_mode": "1", "xDesc": "2, 6, 9, 8", "yDesc": "2, 6, 9, 8", "bnScaleBiasMeanVarDesc": "1, 6, 1, 1"}),
    ("ActivationForward", {
        "activDesc": "miopenActivationRELU, 1, 0.5, 1e-05, ", "xDesc": "2, 6, 9, 8", "yDesc": "2, 6, 9, 8"}),
    ("LRNForward", {
        "lrnDesc": "miopenLRNCrossChannel, 5, 0.0001, 0.75, 1, ", "xDesc": "2, 6, 9, 8", "yDesc": "2, 6, 9, 8"}),
    ("SoftmaxForward_V2", {"xDesc": "2, 6, 9, 8", "yDesc": "2, 6, 9, 8", "algorithm": "1", "mode": "1"}),
    ("OpTensor", {
        "tensorOp": "0", "aDesc": "2, 6, 9, 8", "bDesc": "2, 6, 9, 8", "cDesc": "2, 6, 9, 8"}),
    ("SetTensor", {"yDesc": "2, 6, 9, 8", "y": "0x1", "alpha": "0x2"}),
)  # fmt: skip
COMMANDS = (
    "conv -n 2 -c 6 -H 9 -W 8 -k 10 -y 3 -x 3 -p 1 -q 0 -u 2 -v 1 -l 1 -j 1 -m conv -g 2 -F 1 -t 1",
    "convfp16 -n 1 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3 --in_layout NHWC --fil_layout NHWC --out_layout NHWC"
    " -m trans -g 1 -F 2 -t 1",
    "conv --batchsize 4 --in_channels 3 --in_h 8 --in_w 8 --out_channels 4 --fil_h 3 --fil_w 3"
    " --forw 1 -C /tmp/x -t 1 -S 91",
    "pool -M 0 --input 2x6x9x8,432x72x8x1 -y 3 -x 4 -p 1 -q 0 -v 2 -u 1 -m max -F 1 -t 1",
    "bnorm -n 4 -c 8 -H 2 -W 2 -f 3 -x 0.5 -y 1 -z 1 -m 1 --forw 1 -b 0 -r 1 -s 1 --layout NHWC",
    "activ -n 4 -c 8 -H 2 -W 2 -m 3 --forw 1 -A 1 -B 0.5 -G 1e-05",
    "softmax -n 4 -c 8 -H 2 -W 2 -F 1 -a 1 -m 1 -A 1.0 -B 0.0",
    "lrn -A 0.0001 -B 0.75 -F 1 -H 9 -K 1 -N 5 -W 8 -c 6 -m 1 -n 2",
    "rnn -n 256,128 -W 30 -H 256 -l 2 -b 1 -m lstm -p 0 -r 0 -q 0 -k 2 -c 0 -F 1 -t 1 -w 1 -U 1 -P 0.5",
    "CBAInfer -F 4 -n 32 -c 3 -H 224 -W 7 -k 112 -y 7 -x 7 -p 3 -q 3 -u 1 -v 1 -l 1 -j 1 -g 1",
    "CBAInfer -F 2 -n 32 -c 3 -H 224 -W 7 -m 1",
    "tensorop -A 1.0 -B -1.0 -G 0.0 -n 4 -c 8 -H 2 -W 2 -o 0",
    "reducefp16 -A 1 -B 0 -C 1 -D 4,8,2,2 -I 0 -N 0 -O 0 -R 0,1",
    "kthvaluefp32 -n 4 -T 4,8 -Si 8,1 -F 1",
)  # fmt: skip
OTHERS = (
    "MIOpen(HIP): Info2 [run] kernel_name = {0}, global_work_dim = {{ 64 1 1 }}, local_work_dim = {{ 64 1 1 }}",
    "MIOpen(HIP): Info [ConvolutionForward] algo = {0}, workspace = {0}",
    "MIOpen(HIP): Info [{0}] MIOPEN_FIND_MODE = {0}",
    "MIOpen(HIP): Info2 [GetSolutions] {0}.Chosen Algorithm: {0} , 12, 0.1",
    "MIOpen(HIP): Info2 [FindSolution] ConvOclDirectFwd{0}: Success.",
    "I1120 10:46:48.020552  2155 net.cpp:150] Setting up {0}",
    "I1120 10:46:48.020552  2155 caffe.cpp:465] {0}\tforward: 1.5 ms.",
    "Running on machine: {0}",
    "{0} 4242 MIOpen(HIP): Info [x] {0}",
    "rnn -n {0}",
    "stats: {0}, 1, 2",
)  # fmt: skip
TAGS = ("LogCmdConvolution", "LogCmdFindConvolution", "LogCmdBNorm", "Pooling_logging_cmd", "miopenConvolutionForward")
ARGUMENT = re.compile(
    r"-?[0-9]{1,18}(?:[x,][0-9]{1,18})*"  # numbers, sizes and lists of them
    r"|[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|nan|inf"
    r"|--?[A-Za-z][a-z_]*|reduce(?:fp16|fp64)?"
    r"|(?:conv|CBAInfer|pool|bnorm|activ|softmax|tensorop|lrn|rnn|rnn_seq)(?:b?fp16(?:fp32)?|int8)?"
    r"|trans|max|avg|avg_in|within|cross|relu|tanh|lstm|gru|N[CDHW]{2,4}|NCHWc[48]|CHWNc?[48]?"
)
DRIVER = """#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word" >> "$RECORD"; done
printf '\\0' >> "$RECORD"
"""


class Verdict(NamedTuple):
    """What a batch of logs led to; ``faults`` are the reasons to fail."""

    offered: int
    recorded: int
    refused: int
    faults: tuple[str, ...]


def payload(chance: random.Random) -> str:
    return chance.choice(WRAPPERS).format(chance.choice(SEPARATORS), chance.choice(HARM))


def injected(text: str, chance: random.Random) -> str:
    """``text`` with a payload in place of it, before, behind, in it, or instead of one of its words."""
    bad = payload(chance)
    at = chance.randrange(len(text) + 1)
    spans = [found.span() for found in re.finditer(r"[^\s,{}]+", text)] or [(0, len(text))]
    begin, end = chance.choice(spans)
    return chance.choice((
        bad, bad + text, text + bad, text[:at] + bad + text[at:], text[:begin] + bad + text[end:],
        text[:end] + bad + text[end:],
    ))  # fmt: skip


def an_entry(chance: random.Random, wrong: bool) -> str:
    api, values = chance.choice(ENTRIES)
    hit = chance.choice(list(values)) if wrong else ""
    prefix = chance.choice(("MIOpen(HIP): ", "MIOpen(OpenCL): ", "MIOpen: "))
    if wrong and chance.random() < 0.1:
        prefix = injected("4242 ", chance) + prefix
    if wrong and chance.random() < 0.1:
        api = injected(api, chance)
    lines = [f"{prefix}miopenStatus_t miopen{api}(miopenHandle_t, const void *){{"]
    lines += [
        f"{prefix}\t{name} = {injected(value, chance) if name == hit else value}" for name, value in values.items()
    ]
    return "\n".join([*lines, f"{prefix}}}"])


def a_command(chance: random.Random, wrong: bool) -> str:
    text = chance.choice(COMMANDS)
    if wrong:
        text = injected(text, chance)
    tag = injected("LogCmd", chance) if wrong and chance.random() < 0.1 else chance.choice(TAGS)
    return chance.choice((
        f"MIOpen(HIP): Command [{tag}] ./bin/MIOpenDriver {text}",
        f"miopenConvolutionForward: ./bin/MIOpenDriver {text}", f"MIOpenDriver {text}",
        f"MIOpen(HIP): Command [{tag}] MIOpenDriver.exe {text}",
    ))  # fmt: skip


def hostile_log(chance: random.Random) -> bytes:
    """A few records, most with a payload, and one that is as it should be: its line must come out whole."""
    records: list[str] = []
    for _ in range(chance.randint(1, 4)):
        kind = chance.random()
        if kind < 0.4:
            records.append(an_entry(chance, wrong=True))
        elif kind < 0.8:
            records.append(a_command(chance, wrong=True))
        else:
            records.append(chance.choice(OTHERS).format(payload(chance)))
    make: Callable[[random.Random, bool], str] = chance.choice((an_entry, a_command))
    records.insert(chance.randint(0, len(records)), make(chance, False))
    return ("\n".join(records) + "\n").encode("utf-8", "surrogatepass")


def offered(log: bytes, *options: str) -> tuple[str, str]:
    """What `mio2trace driver` prints of a log, on both streams."""
    done = CliRunner().invoke(cli, ["driver", "-", *options], input=log, catch_exceptions=False)
    return done.stdout, done.stderr


def run_by_shell(script: str) -> tuple[list[list[str]], list[str]]:
    """The arguments of each MIOpenDriver that ``sh`` ran, and what else happened."""
    with tempfile.TemporaryDirectory() as name:
        folder, record = Path(name, "empty"), Path(name, "record")
        binary = folder / "bin" / "MIOpenDriver"
        binary.parent.mkdir(parents=True)
        binary.write_text(DRIVER)
        binary.chmod(0o755)
        record.touch()
        done = subprocess.run(
            ["/bin/sh"], cwd=folder, input=script.encode(), capture_output=True, check=False, timeout=600,
            env={"PATH": str(binary.parent), "RECORD": str(record)},
        )  # fmt: skip
        faults = [f"sh says {line!r}" for line in done.stderr.decode(errors="replace").splitlines()[:5]]
        faults += [f"sh prints {done.stdout[:100]!r}"] if done.stdout else []
        there = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
        faults += [f"a file appeared: {path!r}" for path in sorted(there - {"bin", "bin/MIOpenDriver"})]
        runs = [part.decode(errors="replace").split("\0") for part in record.read_bytes().split(b"\0\0")[:-1]]
    return runs, faults


def judged(logs: Sequence[bytes], options: Sequence[str] = ()) -> Verdict:
    """One shell for all of these logs."""
    faults: list[str] = []
    script, refused = [], 0
    for log in logs:
        out, err = offered(log, *options)
        if not all(line.isprintable() for line in (*out.split("\n"), *err.split("\n"))):
            faults.append(f"a character that steers a terminal, of {log[:2000]!r}")
        script.append(out)
        refused += "no plain driver command" in err
    lines = "".join(script).count("\n")
    runs, more = run_by_shell("".join(script))
    faults += more
    faults += [f"no number and no known word: {word!r}" for run in runs for word in run if not ARGUMENT.fullmatch(word)]
    if len(runs) != lines:
        faults.append(f"{lines} lines, but {len(runs)} runs")
    return Verdict(lines, len(runs), refused, tuple(faults))


def batches(count: int, seed: int, size: int = 100) -> Iterator[list[bytes]]:
    for at in range(0, count, size):
        yield [hostile_log(random.Random(f"{seed}-{number}")) for number in range(at, min(at + size, count))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    begin, totals, faults = time.monotonic(), [0, 0, 0], 0
    for at, logs in enumerate(batches(asked.count, asked.seed)):
        verdict = judged(logs, ("--form", "log") if at % 2 else ())
        totals = [total + more for total, more in zip(totals, verdict[:3], strict=True)]
        for fault in verdict.faults:
            print(f"batch {at}: {fault}"[:300])
        faults += len(verdict.faults)
    print(
        f"seed {asked.seed}: {asked.count} hostile logs, {totals[0]} lines offered, {totals[1]} run, all of"
        f" MIOpenDriver; {totals[2]} logs with commands refused; {faults} faults; {time.monotonic() - begin:.0f} s"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
