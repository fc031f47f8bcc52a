/* Votes of this process's instances, in force with those of other processes. A thread of each gputune_power reads and
 * writes all files. A phase waits for it no longer than LIMIT_NS, and not at all where its vote is in force already.
 * What a killed process leaves is brought back by the next that looks, which each with an instance does. */
#include "power.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#ifndef POWER_ROOT
#define POWER_ROOT "/" /* tests have the controls below a folder of their own */
#endif
#define LOOK_NS 250000000u          /* how long a killed process goes unnoticed */
#define AGAIN_NS 50000000u          /* when what could not be done is tried again */
#define IDLE_NS 3600000000000u      /* without an instance there is nothing to look for */
#define LIMIT_NS 15000000u
#define EXIT_NS 3000000000u
enum { TRIES = 3, MOST_LOOKS = 100, NO_PHASE = -1, MOST_HYSTERESIS_US = 60000000 };

struct gputune_votes {
    gputune_votes *next;
    gputune_power *power;
    gputune_perf_settings settings;
    bool owns; /* the power is its own */
    size_t told;
    int phase, running;
    vote wanted, dropped; /* dropped: from a time on */
    uint64_t drop_at_ns;
};

static void strengthen(vote *vote, const struct gputune_vote *by) {
    const bool first = !is_vote(vote);
    for (int i = 0; i < VOTE_FIELDS && is_vote(by); i++)
        if (first || (i == LATENCY_US ? by->at[i] < vote->at[i] : by->at[i] > vote->at[i])) vote->at[i] = by->at[i];
}

/* What this process votes. The lock is held. */
static vote own_vote(const gputune_power *power) {
    vote own = NO_VOTE;
    for (const gputune_votes *each = power->first; each; each = each->next) strengthen(&own, &each->wanted);
    return own;
}

/* --- what is in force --- */

/* Brings the device to a vote, unless the process that did so before lives and it is the same. */
static void bring(gputune_power *power, const vote *own, const vote *found, const char *by) {
    journal *journal = &power->journal;
    bool lives = strcmp(by, journal->name) == 0 && is_vote(own);
    for (size_t i = 0; i < journal->other_count; i++)
        lives |= strcmp(by, journal->others[i].name) == 0 && is_vote(&journal->others[i].vote);
    const bool same = lives && !power->looks_left && equal_votes(found, &power->in_force);
    write_table(journal, own, &power->in_force, same ? by : journal->name);
    keep_originals(journal, &power->steering);
    power->looks_left = 0;
    if (!same || !equal_votes(&power->held, own))
        steering_apply(&power->steering, &power->in_force, own->at[LATENCY_US], false);
    power->held = *own;
}

/* Brings the originals back; the journal stays until all are, and no process writes any more. */
static void let_go(gputune_power *power, bool journaled) {
    char now[CONTENT_BYTES];
    bool any = journaled || is_vote(&power->held), busy = false, differs = false;
    for (const file *each = power->steering.files; each; each = each->next)
        any |= each->known && (each->lock || !each->write_only);
    const bool refused = any && steering_apply(&power->steering, &NO_VOTE, NO_LATENCY, true);
    power->held = NO_VOTE;
    for (const file *each = power->steering.files; each; each = each->next)
        if (each->known && (each->lock ? strcpy(now, each->now) != NULL : content_of(each->path, now, sizeof now)))
            differs |= (each->lock || !each->write_only) && strcmp(now, each->original);
    const bool failed = refused && differs;
    power->looks_left = failed ? (power->looks_left ? power->looks_left : MOST_LOOKS + 1) - 1 : 0;
    for (size_t i = 0; i < power->journal.other_count; i++) busy |= power->journal.others[i].busy;
    if (busy || failed) write_table(&power->journal, &NO_VOTE, &NO_VOTE, NULL);
    else clear_journal(&power->journal);
}

void settle(gputune_power *power, const vote *own) {
    char by[NAME_BYTES] = "";
    vote before = NO_VOTE;
    journal *journal = &power->journal;
    const found locked = journal_lock(journal);
    found table = NONE, originals = NONE;
    power->behind = locked == NONE;
    if (power->behind) return;
    journal->other_count = 0;
    if (locked == FOUND && (table = read_table(journal, &before, by)) != UNREADABLE)
        originals = read_originals(journal, &power->steering);
    if (table == UNREADABLE || originals == UNREADABLE) { /* they stay as they are: this process is alone */
        journal_unlock(journal);
        journal->other_count = 0;
    }
    power->in_force = *own;
    for (size_t i = 0; i < journal->other_count; i++) strengthen(&power->in_force, &journal->others[i].vote);
    if (is_vote(&power->in_force)) bring(power, own, &before, by);
    else let_go(power, originals == FOUND);
    for (file *each = power->steering.files; each && !is_vote(own) && !power->looks_left; each = each->next)
        each->known = each->write_only && !each->lock; /* others may bring them back from now on, unseen */
    journal_unlock(journal);
}

/* --- the thread --- */

static void free_power(gputune_power *power) {
    steering_close(&power->steering);
    pool_free(&power->shown);
    condition_close(&power->changed);
    mutex_close(&power->lock);
    mutex_close(&power->settling);
    mutex_close(&power->notes.lock);
    free(power);
}

/* Has votes follow whose hysteresis is over; when the next one is. */
static uint64_t drop_votes(gputune_power *power, uint64_t now) {
    uint64_t next = UINT64_MAX;
    for (gputune_votes *each = power->first; each; each = each->next) {
        if (each->drop_at_ns <= now) each->wanted = each->dropped, each->drop_at_ns = UINT64_MAX;
        if (each->drop_at_ns < next) next = each->drop_at_ns;
    }
    return next;
}

/* Waits until something is wanted, or it is time to look. The lock is held. */
static void rest(gputune_power *power, uint64_t now, uint64_t drop_at) {
    const bool again = power->behind || power->looks_left;
    const uint64_t until = now + (again ? AGAIN_NS : power->first ? LOOK_NS : IDLE_NS);
    power->sleeps_until = drop_at < until ? drop_at : until;
    condition_wait_until(&power->changed, &power->lock, power->sleeps_until);
    power->sleeps_until = 0;
    if (now_ns() < until) return;
    mutex_unlock(&power->lock);
    const bool due = again || journal_changed(&power->journal);
    mutex_lock(&power->lock);
    power->due |= due;
}

static void *work(void *argument) {
    gputune_power *power = argument;
    mutex_lock(&power->lock);
    for (int tries = 0; tries < TRIES;) {
        const uint64_t now = now_ns(), drop_at = drop_votes(power, now);
        const vote own = own_vote(power);
        const bool closing = power->closing;
        if (!power->due && !closing && equal_votes(&own, &power->cast)) {
            rest(power, now, drop_at);
            continue;
        }
        power->due = false;
        power->aimed = own;
        mutex_unlock(&power->lock);
        mutex_lock(&power->settling);
        settle(power, &own);
        mutex_unlock(&power->settling);
        mutex_lock(&power->lock);
        power->cast = own;
        condition_tell(&power->changed);
        if (closing) tries = power->behind ? tries + 1 : TRIES;
    }
    power->ended = true;
    const bool abandoned = power->abandoned;
    condition_tell(&power->changed);
    mutex_unlock(&power->lock);
    if (abandoned) free_power(power);
    return NULL;
}

static bool is_cast(const gputune_power *power) {
    const vote own = own_vote(power);
    return equal_votes(&own, &power->cast) && equal_votes(&own, &power->aimed);
}

/* Has what is wanted be cast, and waits a little until it is. The lock is held. */
static gputune_code cast(gputune_power *power, uint64_t limit_ns, gputune_error *error) {
    if (is_cast(power)) return GPUTUNE_OK;
    TRY(check_power(power, error));
    condition_tell(&power->changed);
    for (const uint64_t until = now_ns() + limit_ns; !is_cast(power) && now_ns() < until;)
        condition_wait_until(&power->changed, &power->lock, until);
    return GPUTUNE_OK;
}

static gputune_code want(gputune_votes *votes, const vote *wanted, gputune_error *error) {
    votes->wanted = *wanted;
    votes->drop_at_ns = UINT64_MAX;
    return cast(votes->power, votes->settings.asynchronous ? 0 : LIMIT_NS, error);
}

/* --- what applications call --- */

gputune_code gputune_preset(const char *name, gputune_perf_settings *settings, gputune_error *error) {
    const size_t prefix = strlen("SNPE_PERFORMANCE_PROFILE_");
    const char *plain = strncasecmp(name, "SNPE_PERFORMANCE_PROFILE_", prefix) ? name : name + prefix;
    char all[GPUTUNE_MESSAGE_BYTES / 2] = "";
    for (const preset *each = PRESETS; each->name; each++) {
        if (!strcasecmp(each->name, plain)) return *settings = each->settings, GPUTUNE_OK;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", each == PRESETS ? "" : ", ", each->name);
    }
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "there is no perf profile '%.80s', only %s", name, all);
}

/* Refuses what no setting means. */
static gputune_code check_settings(const gputune_perf_settings *settings, gputune_error *error) {
    static const int32_t MOST[VOTE_FIELDS] = {9, 9, 9, 9, 9, 9, 1, 1, PERFORMANCE, NO_LATENCY};
    for (int i = 0; i < 6 * VOTE_FIELDS; i++) {
        const vote *votes = i < 3 * VOTE_FIELDS ? settings->start : settings->done;
        const int32_t place = i % VOTE_FIELDS, value = votes[i / VOTE_FIELDS % 3].at[place];
        if (value < 0 || value > MOST[place])
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "place %d of a vote is from 0 to %d, not %d", place,
                        MOST[place], value);
    }
    if (settings->hysteresis_us <= MOST_HYSTERESIS_US) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "a hysteresis is from 0 to %d us", MOST_HYSTERESIS_US);
}

gputune_code check_power(const gputune_power *power, gputune_error *error) {
    if (power->process == (long)getpid()) return GPUTUNE_OK;
    return fail(error, GPUTUNE_FORKED_PROCESS, "the votes for %s are of process %ld, not of its fork %ld",
                power->steering.key, power->process, (long)getpid());
}

gputune_code open_kinds(unsigned kinds, const char *root, gputune_power **power, gputune_error *error) {
    gputune_power *made = calloc(1, sizeof *made);
    const bool good = made && mutex_open(&made->lock) && mutex_open(&made->settling) && mutex_open(&made->notes.lock) &&
                      condition_open(&made->changed);
    if (!good) {
        free(made);
        return NO_MEMORY;
    }
    made->process = (long)getpid();
    made->aimed = made->cast = made->held = made->in_force = NO_VOTE;
    made->steering.notes = &made->notes;
    steering_find(&made->steering, kinds, root);
    journal_open(&made->journal, made->steering.key, &made->notes);
    *power = made;
    return GPUTUNE_OK;
}

gputune_code gputune_open_power(const char *device_type, const char *vendor, const char *name, const char *root,
                                gputune_power **power, gputune_error *error) {
    return open_kinds(kinds_of(device_type, vendor, name), root, power, error);
}

void gputune_close_power(gputune_power *power) {
    if (!power) return;
    if (check_power(power, NULL)) { /* a fork has no thread, and gives back what it has a copy of */
        if (power->journal.lock >= 0) close(power->journal.lock);
        if (power->journal.directory >= 0) close(power->journal.directory);
        if (power->steering.latency_file >= 0) close(power->steering.latency_file);
        pool_free(&power->steering.pool);
        pool_free(&power->shown);
        free(power);
        return;
    }
    mutex_lock(&power->lock);
    power->closing = true;
    condition_tell(&power->changed);
    for (const uint64_t until = now_ns() + EXIT_NS; power->works && !power->ended && now_ns() < until;)
        condition_wait_until(&power->changed, &power->lock, until);
    power->abandoned = power->works && !power->ended;
    const bool abandoned = power->abandoned, works = power->works;
    const thread thread = power->thread;
    mutex_unlock(&power->lock);
    if (abandoned) {
        thread_leave(thread);
        return;
    }
    if (works) thread_join(thread);
    free_power(power);
}

const char *gputune_power_key(const gputune_power *power) { return power->steering.key; }

const char *gputune_power_warning(const gputune_power *power, size_t number) {
    return noted((notes *)&power->notes, number);
}

gputune_code gputune_open_votes(gputune_power *power, const gputune_perf_settings *settings, gputune_votes **votes,
                                gputune_error *error) {
    TRY(check_power(power, error));
    TRY(check_settings(settings, error));
    gputune_votes *made = calloc(1, sizeof *made);
    if (!made) return NO_MEMORY;
    *made = (gputune_votes){.power = power, .settings = *settings, .phase = NO_PHASE, .wanted = NO_VOTE};
    made->drop_at_ns = UINT64_MAX;
    mutex_lock(&power->lock);
    power->works = power->works || thread_start(&power->thread, work, power);
    const bool works = power->works;
    if (works) {
        power->due |= !power->first; /* something may be left by a process that was killed */
        made->next = power->first;
        power->first = made;
        condition_tell(&power->changed);
    }
    mutex_unlock(&power->lock);
    if (works) return *votes = made, GPUTUNE_OK;
    free(made);
    return fail(error, GPUTUNE_OUT_OF_MEMORY, "no thread can be started for votes");
}

gputune_code gputune_set_votes(gputune_votes *votes, const gputune_perf_settings *settings, gputune_error *error) {
    TRY(check_settings(settings, error));
    gputune_code code = GPUTUNE_OK;
    mutex_lock(&votes->power->lock);
    votes->settings = *settings;
    if (votes->phase != NO_PHASE && !votes->running) code = want(votes, &settings->done[votes->phase], error);
    mutex_unlock(&votes->power->lock);
    return code;
}

static gputune_code check_phase(gputune_phase phase, gputune_error *error) {
    if (phase == GPUTUNE_INIT || phase == GPUTUNE_EXECUTE || phase == GPUTUNE_DEINIT) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "there is no phase %d", (int)phase);
}

gputune_code gputune_begin_phase(gputune_votes *votes, gputune_phase phase, gputune_error *error) {
    if (!votes) return GPUTUNE_OK;
    TRY(check_phase(phase, error));
    mutex_lock(&votes->power->lock);
    votes->phase = (int)phase;
    votes->running++;
    const gputune_code code = want(votes, &votes->settings.start[phase], error);
    mutex_unlock(&votes->power->lock);
    return code;
}

gputune_code gputune_end_phase(gputune_votes *votes, gputune_phase phase, gputune_error *error) {
    if (!votes) return GPUTUNE_OK;
    TRY(check_phase(phase, error));
    gputune_code code = GPUTUNE_OK;
    gputune_power *power = votes->power;
    mutex_lock(&power->lock);
    if (votes->running) votes->running--;
    if (!votes->running && phase == GPUTUNE_EXECUTE && votes->settings.hysteresis_us) {
        votes->dropped = votes->settings.done[phase];
        votes->drop_at_ns = now_ns() + votes->settings.hysteresis_us * 1000;
        if (votes->drop_at_ns < power->sleeps_until) condition_tell(&power->changed); /* else it looks earlier */
    } else if (!votes->running) {
        code = want(votes, &votes->settings.done[phase], error);
    }
    mutex_unlock(&power->lock);
    return code;
}

void gputune_close_votes(gputune_votes *votes) {
    if (!votes) return;
    gputune_power *power = votes->power;
    if (!check_power(power, NULL)) {
        mutex_lock(&power->lock);
        gputune_votes **place = &power->first;
        while (*place != votes) place = &(*place)->next;
        *place = votes->next;
        cast(power, EXIT_NS, NULL);
        mutex_unlock(&power->lock);
    }
    if (votes->owns) gputune_close_power(power);
    free(votes);
}

/* --- for graphs and the agent --- */

gputune_code votes_open(const gputune_perf_settings *settings, const identity *device, gputune_votes **votes,
                        gputune_error *error) {
    gputune_power *power;
    bool asks = false;
    *votes = NULL;
    for (int i = 0; i < 3; i++) asks |= is_vote(&settings->start[i]) || is_vote(&settings->done[i]);
    if (!asks) return GPUTUNE_OK;
    TRY(gputune_open_power(device->device_type, device->vendor, device->name, POWER_ROOT, &power, error));
    const gputune_code code = gputune_open_votes(power, settings, votes, error);
    if (code) gputune_close_power(power);
    else (*votes)->owns = true;
    return code;
}

bool votes_warning(gputune_votes *votes, char *text, size_t size) {
    const char *line = votes ? noted(&votes->power->notes, votes->told) : NULL;
    if (line) votes->told++, snprintf(text, size, "power: %s", line);
    return line != NULL;
}

size_t votes_files(const gputune_votes *votes, const char **paths, size_t most) {
    size_t count = 0;
    for (const file *each = votes ? votes->power->steering.files : NULL; each && count < most; each = each->next)
        paths[count++] = each->path;
    return count;
}
