"""Change sources with inline assembly for the filter of sources, and give it to C preprocessors.

A source has statements of the list in core/assembly.py, macros that try to change them, and often a few random changes.
The filter may refuse it. If the filter accepts it, clang and gcc preprocess it, with and without trigraphs. They may
read no other file, and their output may hold only whole statements of the list, and next to assembly no other text.
"""

import random
import re
import shutil
import subprocess
from pathlib import Path

from gputune.core.assembly import INSTRUCTIONS, STATEMENTS
from gputune.core.errors import BuildFailed
from gputune.runtime.backends.sources import refuse_files
from tests.strategies.changes import Broken, check_line

FEATURES = {each.feature for each in INSTRUCTIONS}
TEXTS = {text for statement in STATEMENTS for text in re.findall(r"\"[^\"]*\"", statement)}
SECRET = "gputune_secret"

NAMES = ("F", "G", "X", "x", "as", "m", "__as", "m__", "EMPTY", "_Pra", "gma", "inc", "lude")
KEYWORDS = ("asm", "__asm__", "__asm", "volatile", "__volatile__", "goto", "_Pragma", "__VA_ARGS__", "define", "if 0")
SIGNS = (",", ":", ";", "##", "(x)", "(r, x)", "\\\n", " ")
HOSTILE = (
    "(", ")", "{", "}", ") , (", ") ) ; ( (", ") : (", "\n", "#", "%:", "??=",
    "??/\n", "\\ \n", "\\\r\n", "\r", '"', "'", "//", "/*", "*/", "\\", "$", "\0", "\f", "\v", "é",
    "\u180e", "#x", "%:%:", "??=??=", '"x"', 'R"(', 'L"', '".incbin \\"secret.h\\""', 'asm("x")', '_Pragma("x")',
    '#include "secret.h"\n', '#if 0\n', "#endif\n", "#error don't\n", '#pragma push_macro("volatile")\n',
    '/#pragma push_macro("X")*', '#pragma GCC dependency "secret.h"\n', "\n#define volatile goto\n",
    "\n#define volatile(x, ...) (x)\n", "\n#define X ) : (\n",
    "\n#define m(x) #x\nm(x);\n", "\n#if 0\n)\n#endif\n", "\n#if 0\n(\n#endif\n",
)  # fmt: skip
OPTIONS = (
    "-DX=1",
    "-DF=asm",
    "-Dvolatile=goto",
    "-DEMPTY",
    "-DG(x)=x",
    "-DX=)",
    "-Das=m",
    "-cl-fast-relaxed-math",
    "-DX=a##b",
)
TOKEN = re.compile(r"\w+|\s+|\"(?:\\.|[^\"\\\n])*\"|.", re.DOTALL)


def prepared(folder: Path) -> Path:
    """Return the folder, with a file that no source may read."""
    (folder / "secret.h").write_text(f"{SECRET}\n")
    return folder


def examine(chance: random.Random, folder: Path) -> str:
    """Return how one source ends. Raises Broken, and whatever else is raised that must not be."""
    source, options = made(chance), " ".join(chance.sample(OPTIONS, chance.choice((0, 0, 0, 1, 2))))
    try:
        refuse_files(source, options, lambda names: {name: "" if name in FEATURES else "no" for name in names})
    except BuildFailed as error:
        check_line(error)
        return "refused"
    return max(check(read) for read in preprocessed(source, options, folder))


def made(chance: random.Random) -> str:
    """Return a source: macros, statements, uses of the macros, and up to four random changes of that."""
    tame = chance.random() < 0.6
    vocabulary = (*NAMES, *SIGNS) if tame else (*NAMES, *SIGNS, *KEYWORDS, *HOSTILE)
    lines = [_line(chance, vocabulary) for _ in range(chance.randrange(1, 7))]
    source = "\n".join(["int f(int r, float x) {", *lines, "return r; }", ""])
    for _ in range(0 if tame else chance.choice((0, 1, 1, 2, 4))):
        tokens = TOKEN.findall(source)
        place, length = chance.randrange(len(tokens)), chance.choice((0, 0, 1, 1, 2, 8))
        other = chance.randrange(len(tokens))
        new = chance.choice(
            (chance.choice(HOSTILE), chance.choice(KEYWORDS), "".join(tokens[other : other + length]), "")
        )
        source = "".join([*tokens[:place], new, *tokens[place + length :]])
    return source


def _line(chance: random.Random, vocabulary: tuple[str, ...]) -> str:
    kind = chance.randrange(4)
    if kind == 0:
        return _statement(chance, vocabulary) + ";"
    pieces = [chance.choice(vocabulary) for _ in range(chance.randrange(5))]
    if chance.random() < 0.5:
        pieces.insert(chance.randrange(len(pieces) + 1), _statement(chance, vocabulary))
    body = chance.choice(("", " ")).join(pieces)
    if kind == 1:
        return f"{chance.choice(NAMES)}({body});"
    parameters = chance.choice(("", "(x)", "(x, m)", "(as, ...)", "()", "(volatile)", "(x, volatile, ...)"))
    return f"#define {chance.choice((*NAMES, 'volatile', 'asm'))}{parameters} {body}"


def _statement(chance: random.Random, vocabulary: tuple[str, ...]) -> str:
    """Return a listed statement, with operands of a few words."""
    inner = chance.choice(list(STATEMENTS))
    while "()" in inner:
        operand = " ".join(
            chance.choice((*NAMES, chance.choice(vocabulary))) for _ in range(chance.choice((1, 1, 1, 2)))
        )
        inner = inner.replace("()", f"({operand} )", 1)
    word = chance.choice(("asm", "__asm__", "__asm__"))
    return f"{word}{chance.choice((' ', ' volatile', ' volatile ', ' __volatile__ '))}({inner})"


def preprocessed(source: str, options: str, folder: Path) -> list[str]:
    """Return what each preprocessor of this machine makes of a source, and says about it."""
    compilers = [compiler for compiler in ("clang", "gcc") if shutil.which(compiler)]
    if not compilers:
        raise RuntimeError("neither clang nor gcc is installed")
    read = []
    for compiler in compilers:
        for standard in ("gnu99", "c99", "gnu2x"):  # c99 has trigraphs
            defines = [option for option in options.split() if option.startswith("-D")]
            command = [compiler, "-E", "-x", "c", f"-std={standard}", *defines, "-"]
            done = subprocess.run(command, input=source.encode(), capture_output=True, cwd=folder, timeout=20)
            if SECRET.encode() in done.stdout + done.stderr:
                raise Broken(f"{compiler} read another file: {source!r}")
            read.append(done.stdout.decode(errors="replace"))
    return read


def check(read: str) -> str:
    """Return whether a preprocessed source has assembly. Raises Broken for assembly and texts that are not listed."""
    read = re.sub(r"^# \d+ \".*|^#pragma (?:push|pop)_macro\(.*", "", read, flags=re.MULTILINE)
    tokens = [token for token in TOKEN.findall(read) if not token.isspace()]
    places = [place for place, token in enumerate(tokens) if token in ("asm", "__asm", "__asm__")]
    for place in places:
        if (statement := _statement_of(tokens[place + 1 :])) not in STATEMENTS:
            raise Broken(f"the assembly {statement} was accepted: {read!r}")
    if places and (others := {token for token in tokens if token[0] in "\"'"} - TEXTS):
        raise Broken(f"next to assembly, {sorted(others)} was accepted: {read!r}")
    return "with assembly" if places else "accepted"


def _statement_of(tokens: list[str]) -> str:
    """Return what stands behind a word of assembly, as STATEMENTS has it: without operands."""
    kept, depth = [], 0
    for token in tokens:
        depth -= token == ")"
        if depth < 2 and token not in ("volatile", "__volatile__"):
            kept.append(token)
        depth += token == "("
        if depth <= 0 and token not in ("volatile", "__volatile__"):
            break
    return "".join(kept)[1:-1]
