/* What costs an application time or memory that it has not asked for. */
#include "graph.h"

#include <string.h>

void warn(gputune_graph *graph, const char *format, ...) {
    char text[GPUTUNE_MESSAGE_BYTES];
    va_list values;
    va_start(values, format);
    write_text(text, sizeof text, format, values);
    va_end(values);
    struct warning **end = &graph->warnings;
    while (*end) end = &(*end)->next;
    struct warning *made = pool_take(&graph->pool, 1, sizeof *made);
    if (!made || !(made->text = pool_text(&graph->pool, text, strlen(text)))) return;
    *end = made;
    graph->total.warnings++;
}
