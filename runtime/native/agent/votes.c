/* Votes for clocks and power while this connection lives. */
#include "power/votes.h"
#include "session.h"

enum { MOST_FILES = 64 };

gputune_code set_votes(session *session, const void *asked, void *reply, gputune_error *error) {
    const set_votes_message *const request = asked;
    steered_message *const steered = reply;
    found_device *found;
    size_t count;
    gputune_votes *fresh = NULL;
    gputune_code code = devices_of(session, &found, &count, error);
    const char **const paths = reply_rows(session, MOST_FILES, sizeof *paths, &code, error);
    if (!code && request->place >= count)
        code = fail(error, GPUTUNE_DEVICE_NOT_FOUND, "there are %zu devices", count);
    if (!code && *request->preset) code = votes_open(request->preset, &found[request->place].identity, &fresh, error);
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
