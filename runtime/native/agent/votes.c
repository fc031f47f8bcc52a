/* Votes for clocks and power while this connection lives. */
#include "power/votes.h"
#include "session.h"

enum { MOST_FILES = 64, VOTES = 6 * GPUTUNE_VOTE_FIELDS };

/* Settings as PerfProfile.places has them. */
static gputune_code read_settings(const set_votes_message *request, gputune_perf_settings *settings,
                                  gputune_error *error) {
    if (request->settings_count != VOTES + 2)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "a perf profile has %d numbers, not %zu", VOTES + 2,
                    request->settings_count);
    for (size_t i = 0; i < VOTES; i++) {
        gputune_vote *votes = i < VOTES / 2 ? settings->start : settings->done;
        const size_t number = request->settings[i], place = i % (VOTES / 2);
        votes[place / GPUTUNE_VOTE_FIELDS].at[place % GPUTUNE_VOTE_FIELDS] = number > INT32_MAX ? -1 : (int32_t)number;
    }
    settings->hysteresis_us = request->settings[VOTES];
    settings->asynchronous = request->settings[VOTES + 1];
    return GPUTUNE_OK;
}

gputune_code set_votes(session *session, const void *asked, void *reply, gputune_error *error) {
    const set_votes_message *const request = asked;
    steered_message *const steered = reply;
    found_device *found;
    size_t count;
    gputune_perf_settings settings;
    gputune_votes *fresh = NULL;
    gputune_code code = devices_of(session, &found, &count, error);
    const char **const paths = reply_rows(session, MOST_FILES, sizeof *paths, &code, error);
    if (!code && request->place >= count)
        code = fail(error, GPUTUNE_DEVICE_NOT_FOUND, "there are %zu devices", count);
    if (!code && request->settings_count) code = read_settings(request, &settings, error);
    if (!code && request->settings_count) code = votes_open(&settings, &found[request->place].identity, &fresh, error);
    if (code) return code;
    gputune_end_phase(fresh, GPUTUNE_INIT, NULL); /* its vote between inferences, at once */
    gputune_close_votes(session->votes);
    session->votes = fresh;
    steered->controls_count = votes_files(fresh, paths, MOST_FILES);
    steered->controls = paths;
    return code;
}

gputune_code cast_vote(session *session, const void *asked, void *reply, gputune_error *error) {
    const vote_message *const request = asked;
    (void)reply;
    return (request->begins ? gputune_begin_phase : gputune_end_phase)(session->votes, GPUTUNE_EXECUTE, error);
}
