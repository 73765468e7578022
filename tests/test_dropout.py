"""Dropout's descriptor: setting it fills the states of its random numbers, which is a kernel of its own."""

from __future__ import annotations

from pathlib import Path

from mio2trace import analyse
from tests.small_runs import Program, as_json

HEAD = "MIOpen(OpenCL): miopenStatus_t"
LOG = f"""{HEAD} miopenSetDropoutDescriptor(miopenDropoutDescriptor_t, miopenHandle_t, float, void *, size_t, bool){{
MIOpen(OpenCL): \tdropoutDesc = 1,
MIOpen(OpenCL): \tdropout = 0.5
MIOpen(OpenCL): \tstates = 0x7f5c3a000000
MIOpen(OpenCL): \tstateSizeInBytes = 3145728
MIOpen(OpenCL): }}
{HEAD} miopenDropoutForward(const miopenDropoutDescriptor_t, const miopenTensorDescriptor_t, const void *){{
MIOpen(OpenCL): \tdropoutDesc = 1,
MIOpen(OpenCL): \txDesc = 64, 512
MIOpen(OpenCL): \tx = 0x7f5c3b000000
MIOpen(OpenCL): \tyDesc = 64, 512
MIOpen(OpenCL): \ty = 0x7f5c3c000000
MIOpen(OpenCL): }}
"""


def test_filling_the_states_is_a_kernel_of_the_call_that_sets_the_descriptor(tmp_path: Path) -> None:
    """It is in no other call, and that call's own kernel is in its."""
    program = Program()
    program.program()
    for number, name in enumerate(("InitKernelState", "DropoutForward")):
        program.kernel(name, f"0x{60 + number}")
        program.enqueue(name, f"0x{60 + number}")
    (tmp_path / "prof.json").write_bytes(as_json(program.calls))
    (tmp_path / "run.log").write_text(LOG)
    links = analyse([tmp_path / "prof.json", tmp_path / "run.log"]).run.alignments[0].links
    lines = {operation.index: operation.line for operation in links.operations}
    assert [lines.get(index) for index in links.operation_of] == [1, 7]
