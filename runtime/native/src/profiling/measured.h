/* What is measured of inferences beside their times: the system's events, and the state of the machine. */
#ifndef GPUTUNE_MEASURED_H
#define GPUTUNE_MEASURED_H

#include "log.h"

typedef struct meters meters;     /* of a profile; several threads may measure with them */
typedef struct measured measured; /* of the inferences of one graph */

/* NULL where there is no memory. */
meters *meters_open(void);
const events *meters_events(const meters *own);
/* here: not in a fork, where another thread may have had them. */
void meters_close(meters *own, bool here);
/* To be freed; NULL where there is no memory. */
measured *measured_open(meters *meters);
/* In front of an inference; writes the state when the last sample is old. */
void measured_begin(measured *own, profile_log *log);
/* Right behind it. */
void measured_end(measured *own);
/* Adds what has grown in between to a record. */
void measured_add(const measured *own, logged *inference);

#endif
