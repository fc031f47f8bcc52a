#include "reading.h"
void read_nodes(reader *reader, gputune_file *file) {
    (void)file;
    malformed(reader, "ONNX files are not read yet");
}
