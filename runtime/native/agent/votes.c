/* Votes for clocks and power while this connection lives. */
#include "session.h"

enum { MOST_FILES = 64 };

gputune_code set_votes(session *session, const void *asked, void *reply, gputune_error *error) {
    const set_votes_message *const request = asked;
    steered_message *const steered = reply;
    found_device *found;
    size_t count;
    votes *fresh = NULL;
    gputune_code code = devices_of(session, &found, &count, error);
    const char **const paths = reply_rows(session, MOST_FILES, sizeof *paths, &code, error);
    if (!code && request->place >= count)
        code = fail(error, GPUTUNE_DEVICE_NOT_FOUND, "there are %zu devices", count);
    if (!code && *request->preset) code = votes_open(request->preset, &found[request->place].identity, &fresh, error);
    if (code) return code;
    votes_end(fresh, "init"); /* its vote between inferences, at once */
    votes_close(session->votes, true);
    session->votes = fresh;
    steered->controls_count = votes_files(fresh, paths, MOST_FILES);
    steered->controls = paths;
    return code;
}

gputune_code cast_vote(session *session, const void *asked, void *reply, gputune_error *error) {
    const vote_message *const request = asked;
    (void)reply, (void)error;
    if (request->begins) votes_begin(session->votes, "execute");
    else votes_end(session->votes, "execute");
    return GPUTUNE_OK;
}
