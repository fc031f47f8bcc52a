/* Votes of graphs and of the agent, with controls of their own. */
#ifndef GPUTUNE_VOTES_H
#define GPUTUNE_VOTES_H

#include "../files/context.h"

/* Opens votes with controls of their own; NULL for settings that ask for nothing. */
gputune_code votes_open(const gputune_perf_settings *settings, const identity *device, gputune_votes **votes,
                        gputune_error *error);
/* The next line that gputune_warning is to give; false where there is none. */
bool votes_warning(gputune_votes *votes, char *text, size_t size);
/* The files by which a device is steered, as many as there is room for; their number. */
size_t votes_files(const gputune_votes *votes, const char **paths, size_t most);

#endif
