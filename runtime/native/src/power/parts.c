/* What controls are made of: files, frequencies, and who has them. */
#include "power.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool content_of(const char *path, char *content, size_t size) {
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t length = opened < 0 ? -1 : read(opened, content, size);
    const bool good = length >= 0 && (size_t)length < size;
    if (opened >= 0) close(opened);
    content[good ? length : 0] = 0;
    return good;
}

bool same_words(const char *one, const char *other) {
    size_t i = strlen(one), j = strlen(other);
    while (i && one[i - 1] <= ' ') i--;
    while (j && other[j - 1] <= ' ') j--;
    return i == j && memcmp(one, other, i) == 0;
}

actuator *add_actuator(steering *steering, const char *kind, uint64_t honoured) {
    actuator *added = pool_take(&steering->pool, 1, sizeof *added);
    if (!added) return NULL;
    added->kind = kind;
    added->honoured = honoured;
    *steering->actuator_end = added;
    steering->actuator_end = &added->next;
    return added;
}

void add_step(control *control, int64_t step) {
    size_t place = 0;
    while (place < control->step_count && control->steps[place] < step) place++;
    if (step <= 0 || control->step_count == MOST_FREQUENCIES) return;
    if (place < control->step_count && control->steps[place] == step) return;
    memmove(control->steps + place + 1, control->steps + place, (control->step_count++ - place) * sizeof step);
    control->steps[place] = step;
}

static file *add_file(steering *steering, actuator *actuator, const char *path) {
    file *added = pool_take(&steering->pool, 1, sizeof *added);
    if (!added) return NULL;
    added->path = path;
    added->actuator = actuator;
    *steering->end = added;
    steering->end = &added->next;
    steering->file_count++;
    return added;
}

control *add_control(steering *steering, control made, actuator *actuator, const char *path, const char *lower) {
    const bool is_clock = made.kind == RANGE || made.kind == LEVEL || made.kind == LOCK;
    if (!actuator || (is_clock && !made.step_count)) return NULL;
    if (made.kind != LOCK && access(lower ? lower : path, F_OK)) return NULL;
    control *added = pool_take(&steering->pool, 1, sizeof *added);
    if (lower && !(made.files[LOWER] = add_file(steering, actuator, lower))) return NULL;
    if (!added || !(made.files[UPPER] = add_file(steering, actuator, path))) return NULL;
    made.next = NULL;
    *added = made;
    *steering->control_end = added;
    steering->control_end = &added->next;
    return added;
}
