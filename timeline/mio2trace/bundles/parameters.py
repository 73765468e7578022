"""The parameters of a logged call, by what they may be: numbers, addresses, words that MIOpen itself has.

Nobody looks at their text, so no form of what is private is searched in them: what is none of these is cut, with all
that follows it. A name that MIOpen's functions do not have becomes another.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NAMES = frozenset(
    re.findall(
        r"\w+",
        "A B C aDesc activAlpha activBeta activDesc activFwdOp activGamma activOp algo alpha alpha0 alpha1 "
        "alpha2 alpha3 args attr axis b bDesc beta bias biasDesc bnBias bnDesc bnOp bnScale "
        "bnScaleBiasDiffDesc bnScaleBiasMeanVarDesc bn_mode c cDesc c_mode convDesc conv_mode cx cxDesc cy "
        "cyDesc dO dQ dK dV dataType db dbDesc dcx dcxDesc dcy dcyDesc derivedBnDesc dhx dhxDesc dhy dhyDesc "
        "dilation_h dilation_w dilations direction direction_mode do_backward dropout dropoutDesc dw dwDesc dx "
        "dxDesc dy dyDesc eps epsilon estimatedMean estimatedVariance exhaustiveSearch expAvgFactor filterDesc "
        "find_mode fuseDirection fusePlanDesc gamma groupCount group_count h handle hiddenSize hx hxDesc hy "
        "hyDesc indices input inputDesc inputMode inputTensorDesc input_grad k layer lrnAlpha lrnBeta lrnDesc "
        "lrnK lrnN maxSolutionCount maxWorkspaceSize mean mode n name nLayers nbDims negSlope normalized_dim "
        "num_groups op operation options output outputDesc output_grad pad_h pad_w pads perfResults poolDesc "
        "problem problem_type ratio reduceTensorDesc requestAlgoCount reserveSpace reserveSpaceNumBytes "
        "reserveSpaceSizeInBytes resultBnBiasDiff resultBnScaleDiff resultRunningMean resultRunningVariance "
        "resultSaveInvVariance resultSaveMean returnedAlgoCount rnnDesc rnnMode rstd savedInvVariance "
        "savedMean scale seed seqLen seqLength sequenceLen size sizeInBytes solution solution_id spatialDim "
        "states stateSizeInBytes statesSizeInBytes stride strides stride_h stride_w target tensorDesc tensorOp "
        "threshold transpose value variance w wDesc weight weightDesc windowHeight windowWidth workSpace "
        "workSpaceNumBytes workSpaceSize workSpaceSizeInBytes workspace workspaceSize workspaceSizeInBytes "
        "workspace_size x xDesc y yDesc yGrad zDesc",
    )
)
_NAME = re.compile(r"([A-Za-z]\w*)(?:\.values|\[\d{1,4}\])?")
_RUN = re.compile(r"[^\s,{}()\[\]=;]+")
_ALLOWED = re.compile(
    r"[+-]?\d{1,19}(?:\.\d{0,17})?(?:e[+-]?\d{1,3})?|[+-]?(?:nan|inf)|0[xX][0-9A-Fa-f]{1,16}|[0-9A-F]{16}|(?:0x)?\0"
    r"|miopen[A-Z]\w{0,60}|conv[23]d|packed|stream:|device_id:|nullptr|true|false|True|False|None|none|mean|sum|nil"
    r"|:+"
)
_FUNCTION = re.compile(r"(?:miopen::)?miopen\w{1,80}")
_TYPES = re.compile(r"miopen\w{1,60}|const|void|int|unsigned|char|bool|float|double|size_t|u?int\d+_t|std::\w+|[*&<>]+")
_TYPE = re.compile(r"[^\s,*&<>(){}]+")


def value(text: str) -> str:
    """Up to the first thing that is neither a number nor an address nor a word of MIOpen's."""
    for match in _RUN.finditer(text):
        if _ALLOWED.fullmatch(match[0]) is None:
            return text[: match.start()] + "?"
    return text


def parameter(text: str, another: Callable[[str], str]) -> str:
    """A line ``name = value``; ``another`` gives a name in the place of one that is not known."""
    name, equals, rest = text.partition(" =")
    bare = name.strip()
    match = _NAME.fullmatch(bare)
    shown = bare if match is not None and match[1] in _NAMES else another(bare)
    begin = name[: len(name) - len(name.lstrip())]
    return f"{begin}{shown}{equals}{value(rest)}" if equals else begin + value(text.strip())


def header(text: str) -> str:
    """``miopenStatus_t miopenConvolutionForward(const void *, ...){`` with types that are MIOpen's or C's."""
    before, bracket, rest = text.partition("(")
    name = before.split()[-1] if before.split() else ""
    if _FUNCTION.fullmatch(name) is None:
        before = "miopenStatus_t miopenUnnamed"
    if not bracket:
        return before
    types, close, end = rest.rpartition(")")
    kept = _TYPE.sub(lambda match: match[0] if _TYPES.fullmatch(match[0]) else "?", types if close else rest)
    return before + bracket + kept + (close + ("{" if "{" in end else "") if close else "")
