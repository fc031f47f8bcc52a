/* What a vote means for a control. docs/power.md says it in words. */
#include "power.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { AWAKE_US = 1000 };

const vote NO_VOTE = {{0, 0, 0, 0, 0, 0, 0, 0, UP_DOWN, NO_LATENCY}};

bool equal_votes(const vote *one, const vote *other) { return memcmp(one, other, sizeof *one) == 0; }
bool is_vote(const vote *vote) { return !equal_votes(vote, &NO_VOTE); }

static int32_t larger(int32_t one, int32_t other) { return one > other ? one : other; }

static bool is_held(size_t corners, const vote *vote) { return vote->at[HELD] && vote->at[corners + 1]; }

static int32_t cap_of(const vote *vote) {
    return vote->at[MODE] == SAVER ? SVS2 : vote->at[MODE] == SAVER_AGGRESSIVE ? CORNER_MIN : 0;
}

/* From which corner to which a clock shall go. Without a governor both are the target. ONLY_UP begins at the target. A
 * mode that saves power caps a clock without an upper end; PERFORMANCE raises one without a lower end. */
static void limits(size_t domain, const vote *vote, int32_t *least, int32_t *most) {
    const int32_t *corners = vote->at + domain, cap = cap_of(vote);
    *least = corners[0];
    *most = corners[2];
    if (is_held(domain, vote)) *least = *most = corners[1];
    else if (vote->at[MODE] == ONLY_UP) *least = larger(*least, corners[1]);
    else if (vote->at[MODE] == PERFORMANCE && !*least) *least = TURBO;
    else if (cap && !*most) *most = larger(cap, *least);
}

static bool asks(size_t domain, const vote *vote) {
    int32_t least, most;
    limits(domain, vote, &least, &most);
    return least || most;
}

/* The frequency of a corner: the nearest, the higher one of two, or the nearest that is not below. */
static int64_t frequency_at(const control *control, int32_t corner, bool at_least) {
    static const double SHARES[] = {0, 0, 0.15, 0.3, 0.4, 0.55, 0.65, 0.85, 0.95, 1};
    const int64_t *steps = control->steps, lowest = steps[0], highest = steps[control->step_count - 1];
    const double wanted = (double)lowest + SHARES[corner] * (double)(highest - lowest);
    if (control->continuous) return (int64_t)(at_least ? ceil(wanted - 1e-3) : rint(wanted));
    size_t found = 0;
    for (size_t i = 1; i < control->step_count; i++) {
        const double off = fabs((double)steps[i] - wanted), least = fabs((double)steps[found] - wanted);
        if (at_least ? (double)steps[i - 1] < wanted - 1e-3 : off <= least + 1e-3) found = i;
    }
    return steps[found];
}

void voted_ends(const control *control, const vote *vote, int64_t ends[2]) {
    const bool both = control->kind == LEVEL || control->kind == LOCK; /* neither end can be left alone */
    int32_t least, most;
    limits(control->corners, vote, &least, &most);
    if (both && (least || most)) least = larger(least, CORNER_MIN), most = most ? most : CORNER_MAX;
    ends[LOWER] = least ? frequency_at(control, least, true) : -1;
    ends[UPPER] = most ? frequency_at(control, most, false) : -1;
    if (most && ends[UPPER] < ends[LOWER]) ends[UPPER] = ends[LOWER];
}

/* A frequency as a file has it. */
static int64_t level_of(const control *control, int64_t step) {
    size_t place = 0;
    while (control->counts_down && place < control->step_count && control->steps[place] != step) place++;
    return control->counts_down ? (int64_t)(control->step_count - 1 - place) : step;
}

int64_t step_of(const control *control, const char *content) {
    char *end;
    const int64_t level = strtoll(content, &end, 10), count = (int64_t)control->step_count;
    if (end == content || *end > ' ' || level < 0 || (control->counts_down && level >= count)) return -1;
    return control->counts_down ? control->steps[count - 1 - level] : level;
}

bool next_level(const char **at, int *number, int64_t *mhz, bool *in_use) {
    for (const char *line = *at; *line; line = *at) {
        long long found = 0;
        int length = 0;
        const size_t bytes = strcspn(line, "\n");
        *at = line + bytes + (line[bytes] == '\n');
        if (sscanf(line, "%9d: %12lld%n", number, &found, &length) != 2 || *number < 0) continue;
        if (strncasecmp(line + length, "mhz", 3)) continue;
        *mhz = found;
        *in_use = memchr(line, '*', bytes) != NULL;
        return true;
    }
    return false;
}

/* The numbers of the levels that a vote allows; of all of them without one. */
static void choose_levels(const control *control, const vote *vote) {
    int64_t ends[2], mhz;
    int number;
    bool in_use;
    size_t length = 0;
    char *wanted = control->files[0]->wanted;
    voted_ends(control, vote, ends);
    *wanted = 0;
    if (strncmp(control->mode->wanted, "manual", 6)) return; /* they are refused in any other state */
    for (const char *at = control->word; next_level(&at, &number, &mhz, &in_use) && length + 12 < CONTENT_BYTES;)
        if (ends[UPPER] < 0 || (ends[LOWER] <= mhz && mhz <= ends[UPPER]))
            length += (size_t)snprintf(wanted + length, CONTENT_BYTES - length, "%s%d", length ? " " : "", number);
}

static const char *offered(const control *control, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = control->word; at && (at = strstr(at, word)); at += length)
        if ((at == control->word || at[-1] <= ' ') && at[length] <= ' ') return word;
    return NULL;
}

/* Forced states of a card whose levels cannot be chosen. */
static const char *forced(const vote *vote) {
    int32_t least, most;
    limits(CORE, vote, &least, &most);
    if (least >= TURBO || (is_held(CORE, vote) && least >= NOM_PLUS)) return "high";
    return most && most <= SVS2 ? "low" : NULL;
}

/* The content for a switch; NULL for what it was before. */
static const char *chosen(const control *control, const vote *vote) {
    const bool held = is_held(control->corners, vote), caps = cap_of(vote) && !vote->at[control->corners + 2];
    switch (control->kind) {
    case AWAKE: return vote->at[LATENCY_US] <= AWAKE_US ? control->word : NULL;
    case BUS_ON: return vote->at[BUS] >= NOM || vote->at[BUS + 1] >= NOM ? control->word : NULL;
    case PREFERENCE: return vote->at[HIGH] || held ? "performance" : NULL; /* a held clock's governor takes no other */
    case FORCED: return forced(vote);
    case MANUAL: return (control->domains & 1u << CORE && asks(CORE, vote)) ||
                                (control->domains & 1u << BUS && asks(BUS, vote))
                            ? "manual" : NULL;
    default: break;
    }
    if (held || vote->at[MODE] == PERFORMANCE) return offered(control, "performance");
    return caps ? offered(control, "powersave") : NULL;
}

static void choose_range(const control *control, const vote *vote) {
    int64_t voted[2];
    voted_ends(control, vote, voted);
    for (int end = UPPER; end <= LOWER && control->files[end]; end++) {
        file *file = control->files[end];
        const int64_t before = file->known ? step_of(control, file->original) : -1;
        int64_t step = voted[end], other = control->files[1 - end] ? voted[1 - end] : -1;
        if (step < 0 && before >= 0 && other >= 0 && (end == UPPER ? other > before : other < before))
            step = other; /* the other end's vote lies beyond what it was */
        if (step >= 0 && step != before)
            snprintf(file->wanted, CONTENT_BYTES, "%lld", (long long)level_of(control, step));
        else
            strcpy(file->wanted, file->original); /* as it was, exactly */
    }
}

void choose(control *control, const vote *vote) {
    file *only = control->files[0];
    int64_t ends[2];
    if (control->kind == RANGE || control->kind == BOOST) {
        choose_range(control, vote);
    } else if (control->kind == LEVEL) {
        choose_levels(control, vote);
    } else if (control->kind == LOCK) {
        voted_ends(control, vote, ends);
        if (ends[UPPER] < 0) strcpy(only->wanted, only->original);
        else snprintf(only->wanted, CONTENT_BYTES, "%lld %lld", (long long)ends[LOWER], (long long)ends[UPPER]);
    } else {
        const char *word = chosen(control, vote);
        strcpy(only->wanted, word ? word : only->original);
    }
    for (int end = UPPER; end <= LOWER && control->files[end]; end++)
        if (!control->files[end]->known) *control->files[end]->wanted = 0;
}
