"""Write the README of an exported folder: what it runs, how to build it, and how an application adopts the context."""

from __future__ import annotations

from gputune.client.export.contents import Contents
from gputune.client.pages.escaping import c_string, markdown_code, markdown_text, shell_word
from gputune.kernels.template import moved
from gputune.runtime.context.records import GraphRecord, TensorRecord

_PAGE = """\
# {title}

A model that gputune has compiled, and a C runtime that loads and runs it: no Python, nothing to link to but libc, libm
and libdl. The program looks for libOpenCL.so when it runs.

Made for: {devices}.
On another driver of these devices it is built from source when it is loaded, with a warning; `--strict`, or `strict` in
`gputune_load_options`, refuses that.

## Build and run

```sh
make                                    # or: cmake -B build && cmake --build build
build/gputune-run --context_binary {word} --input_list input_list.txt --output_dir output
```

Outputs are `output/Result_N/NAME.raw`: values one after the other, little endian. `build/gputune-run --help` lists
all options. The files in `inputs/` are random numbers, or zeros for integers.

## What it takes and gives

{graphs}
## In an application of yours

Add `src/*/*.c` and `include/` to your build, or `add_subdirectory` this folder with `GPUTUNE_TOOL=OFF` and link
`gputune`. `include/gputune.h` describes every function, `include/gputune.hpp` wraps them for C++, and `main.c` is an
example.

```c
{program}```

Every function that can fail returns a code and, where it is given an error, one line of text. Threads may share all
objects; inferences of a graph take turns. `gputune_run_async` returns at once and calls back.

## Android

```sh
cmake -B build -DCMAKE_TOOLCHAIN_FILE=$NDK/build/cmake/android.toolchain.cmake \\
    -DANDROID_ABI=arm64-v8a -DANDROID_PLATFORM=android-26
cmake --build build
adb shell mkdir -p /data/local/tmp/app
adb push build/gputune-run {word} input_list.txt inputs /data/local/tmp/app/
adb shell "cd /data/local/tmp/app && chmod 700 . && ./gputune-run --context_binary {word} --input_list input_list.txt"
```

* An app for Android 12 or newer says `<uses-native-library android:name="libOpenCL.so" android:required="false"/>` in
  its manifest; otherwise the linker hides the library from it.
* `GPUTUNE_OPENCL_LIBRARY`, or `library` in `gputune_device_options`, names the library where it is somewhere else.
* Copy the context from the assets into the app's own files folder: a file that other users can change, such as one
  on shared storage, is refused, since its code runs as yours.
* A context runs at its best on the device that it was made for. `gputune context-binary-generator --adb` tunes for a
  phone.
"""

_PROGRAM = """\
gputune_error error;
gputune_file *file;
gputune_device *device;
gputune_graph *graph;
if (gputune_open({name}, &file, &error) ||
    gputune_open_device(&(gputune_device_options){{.file = file}}, &device, &error) ||
    gputune_load(device, file, NULL, &graph, &error)) {{
    fprintf(stderr, "%s\\n", error.message);
    exit(1);
}}
gputune_close(file); /* the graph has what it needs */
{values}if (gputune_run(graph, {inputs}, {outputs}, &error)) fprintf(stderr, "%s\\n", error.message);
gputune_unload(graph);
gputune_close_device(device);
"""

_C_TYPES = {"float32": "float", "bool": "uint8_t"}


def page(contents: Contents) -> str:
    """Return the README in markdown."""
    name, first = contents.path.name, contents.graphs[0]
    devices = sorted({markdown_text(f"{device.name} ({device.driver_version})") for device in contents.devices})
    program = _PROGRAM.format(
        name=c_string(name),
        values=_values("input", first.inputs) + _values("output", first.outputs),
        inputs=_counted("input", first.inputs),
        outputs=_counted("output", first.outputs),
    )
    graphs = "\n".join(map(_graph, contents.graphs))
    return _PAGE.format(
        title=markdown_text(name), word=shell_word(name), devices=", ".join(devices), graphs=graphs, program=program
    )


def _graph(graph: GraphRecord) -> str:
    lines = [f"Graph {markdown_code(graph.name)}, {len(graph.launches)} launches:", ""]
    lines += ["| | name | type | shape | bytes |", "|---|---|---|---|---|"]
    for kind, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            shape = " × ".join(map(str, tensor.shape)) or "scalar"
            lines.append(f"| {kind} | {markdown_code(tensor.name)} | {tensor.dtype} | {shape} | {tensor.nbytes} |")
    return "\n".join(lines) + "\n"


def _values(kind: str, tensors: tuple[TensorRecord, ...]) -> str:
    """Return the declarations of memory for tensors, and of the values that name it."""
    if not tensors:
        return ""
    lines, values = [], []
    for place, tensor in enumerate(tensors):
        elements = " * ".join(map(str, tensor.shape)) or "1"
        lines.append(f"static {_c_type(tensor.dtype)} {kind}_{place}[{elements}];\n")
        values.append(f"{{.name = {c_string(tensor.name)}, .data = {kind}_{place}}}")
    listed = ",\n    ".join(values)
    return f"{''.join(lines)}gputune_value {kind}s[] = {{\n    {listed}}};\n"


def _counted(kind: str, tensors: tuple[TensorRecord, ...]) -> str:
    return f"{kind}s, {len(tensors)}" if tensors else "NULL, 0"


def _c_type(dtype: str) -> str:
    return _C_TYPES.get(dtype, f"{moved(dtype)}_t")
