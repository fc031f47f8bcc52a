/* The identity of a device, as core/identity.py has it. */
#include "reading.h"

#include <stddef.h>
#include <string.h>

#define AT(name)                                                                                                       \
    { #name, offsetof(identity, name) }
static const struct field {
    const char *name;
    size_t offset;
} TEXTS[] = {AT(platform),       AT(platform_version), AT(name),        AT(vendor),
             AT(driver_version), AT(device_version),   AT(device_type), AT(driver)},
  NUMBERS[] = {AT(compute_units),        AT(max_work_group_size),  AT(local_memory_bytes),
               AT(global_memory_bytes),  AT(max_allocation_bytes), AT(base_address_alignment_bytes),
               AT(preferred_float_width)};
enum { TEXT_COUNT = sizeof TEXTS / sizeof *TEXTS, NUMBER_COUNT = sizeof NUMBERS / sizeof *NUMBERS };

static const char **text_at(const identity *device, size_t place) {
    return (const char **)(void *)((uint8_t *)(uintptr_t)device + TEXTS[place].offset);
}

static uint64_t *number_at(const identity *device, size_t place) {
    return (uint64_t *)(void *)((uint8_t *)(uintptr_t)device + NUMBERS[place].offset);
}

void read_identity(reader *reader, item value, identity *device) {
    const char *names[MOST_FIELDS + 1] = {"max_work_item_sizes", "extensions"};
    for (size_t at = 0; at < TEXT_COUNT; at++) names[2 + at] = TEXTS[at].name;
    for (size_t at = 0; at < NUMBER_COUNT; at++) names[2 + TEXT_COUNT + at] = NUMBERS[at].name;
    fields fields = fields_of(reader, NULL, "device identity", 0, value, names);
    if (fields.unknown) malformed(reader, "device identity: an unknown field");
    for (size_t at = 0; at < TEXT_COUNT; at++) *text_at(device, at) = field_text(&fields, TEXTS[at].name);
    for (size_t at = 0; at < NUMBER_COUNT; at++) *number_at(device, at) = field_count(&fields, NUMBERS[at].name);
    device->extensions = field_texts(&fields, "extensions", &device->extension_count);
    slice sizes = field_of(&fields, "max_work_item_sizes", LIST, "a list").content;
    bool good = reader->code || field_of(&fields, "max_work_item_sizes", LIST, "a list").number == 3;
    for (size_t at = 0; at < 3 && good && !reader->code; at++) {
        item size = msgpack_take(&sizes);
        device->max_work_item_sizes[at] = size.number;
        good = size.kind == COUNT && size.number <= INT64_MAX;
    }
    uint64_t alignment = device->base_address_alignment_bytes;
    if (!good) malformed(reader, "device identity: 'max_work_item_sizes' is not three numbers from 0");
    if (!alignment || alignment & (alignment - 1))
        malformed(reader, "device identity: its alignment is no power of two");
    if (strcmp(device->device_type, "cpu") && strcmp(device->device_type, "gpu") &&
        strcmp(device->device_type, "accelerator"))
        malformed(reader, "device identity: device_type is '%s'", device->device_type);
}

bool same_identity(const identity *one, const identity *other) {
    bool same = one->extension_count == other->extension_count &&
                !memcmp(one->max_work_item_sizes, other->max_work_item_sizes, sizeof one->max_work_item_sizes);
    for (size_t at = 0; at < TEXT_COUNT; at++) same = same && !strcmp(*text_at(one, at), *text_at(other, at));
    for (size_t at = 0; at < NUMBER_COUNT; at++) same = same && *number_at(one, at) == *number_at(other, at);
    for (size_t at = 0; same && at < one->extension_count; at++)
        same = !strcmp(one->extensions[at], other->extensions[at]);
    return same;
}
