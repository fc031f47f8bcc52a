/* Counts what inferences cost in memory operations, tensor by tensor. */
#include "inference.h"

#include <string.h>

const char *form_of(const gputune_counters *of) {
    return of->persistent ? "persistent" : of->aborted ? "aborted" : of->recorded ? "recorded" : "launches";
}

/* The same text as long as the graph is there: what memory says goes with the memory. */
static const char *kept(gputune_graph *graph, const char *text) {
    struct warning **at = &graph->reasons;
    while (*at && strcmp((*at)->text, text)) at = &(*at)->next;
    struct warning *made = *at ? *at : pool_take(&graph->pool, 1, sizeof *made);
    if (made && !made->text) made->text = pool_text(&graph->pool, text, strlen(text));
    if (!made || !made->text) return "";
    return (*at = made)->text;
}

void count_copy(gputune_graph *graph, tensor *tensor, uint64_t *copies) {
    ++*copies;
    tensor->last.bytes_copied += tensor->record->nbytes;
    tensor->last.reason = tensor->memory ? kept(graph, tensor->memory->kind)
                                         : "an array was given, and the device has memory of its own";
}

static void count_into(gputune_tensor_counters *sum, const gputune_tensor_counters *counted) {
    sum->bytes_copied += counted->bytes_copied;
    sum->writes += counted->writes;
    sum->reads += counted->reads;
    sum->maps += counted->maps;
    sum->allocations += counted->allocations;
    if (counted->reason && *counted->reason) sum->reason = counted->reason;
}

void clear_counters(gputune_graph *graph) {
    memset(&graph->last, 0, sizeof graph->last);
    for (size_t i = 0; i < graph->tensor_count; i++) graph->tensors[i].last = (gputune_tensor_counters){.reason = ""};
}

void count_inference(gputune_graph *graph, bool good) {
    gputune_counters *total = &graph->total, *last = &graph->last;
    gputune_tensor_counters sum = {.reason = ""};
    for (size_t i = 0; i < graph->tensor_count; i++) {
        count_into(&sum, &graph->tensors[i].last);
        if (good) count_into(&graph->tensors[i].total, &graph->tensors[i].last);
    }
    last->bytes_copied = sum.bytes_copied;
    last->writes = sum.writes;
    last->reads = sum.reads;
    last->maps = sum.maps;
    last->allocations = sum.allocations;
    if (!good) return;
    last->inferences = 1;
    total->inferences++;
    total->bytes_copied += sum.bytes_copied;
    total->writes += sum.writes;
    total->reads += sum.reads;
    total->maps += sum.maps;
    total->allocations += sum.allocations;
    total->elapsed_ns += last->elapsed_ns;
}

/* NULL for a place that does not exist. */
static const tensor *tensor_at(const gputune_graph *graph, bool output, size_t place) {
    const gputune_graph_info *info = &graph->record->info;
    if (place >= (output ? info->output_count : info->input_count)) return NULL;
    return &graph->tensors[output ? info->input_count + place : place];
}

void gputune_tensor_counters_of(gputune_graph *graph, bool output, size_t place, gputune_tensor_counters *total,
                                gputune_tensor_counters *last) {
    const gputune_tensor_counters none = {.reason = ""};
    stream_take(graph->stream);
    const tensor *tensor = tensor_at(graph, output, place);
    if (total) *total = tensor ? tensor->total : none;
    if (last) *last = tensor ? tensor->last : none;
    if (total && !total->reason) total->reason = "";
    if (last && !last->reason) last->reason = "";
    stream_leave(graph->stream);
}

void gputune_load_counters_of(gputune_graph *graph, bool output, size_t place, gputune_tensor_counters *load) {
    const tensor *tensor = tensor_at(graph, output, place);
    *load = (gputune_tensor_counters){.allocations = tensor && !tensor->for_handles, .reason = ""};
}
