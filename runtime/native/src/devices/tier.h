/* The tier of a device, as core/tier.py has it. */
#ifndef GPUTUNE_TIER_H
#define GPUTUNE_TIER_H

#include "../files/context.h"

enum { TIER_TEXT_BYTES = 136 };

/* model: the exact model, in lower-case letters, digits and dashes; family: devices that mostly prefer the same
 * configurations, the model where no rule knows it; vendor: "unknown" for a device that names none. */
typedef struct tier {
    char model[TIER_TEXT_BYTES], family[TIER_TEXT_BYTES], vendor[TIER_TEXT_BYTES];
} tier;
tier tier_of(const identity *device);

/* tables.c. A pattern is a regular expression of Python in the few forms that c_tables.py translates it to:
 *     \c      the character c             #     a digit              [abc]    one of these characters
 *     (a|b)   the first of them that fits  *     any characters       <abc>    these are not in front
 *     %       an end of a word            ^ $   an end of the text    &        a character of a word follows
 * Lists end with a rule without a pattern. */
typedef struct tier_rule {
    const char *pattern, *vendor, *family;
} tier_rule;
extern const tier_rule GPU_RULES[], POCL_MARCHES[], CPU_VENDORS[];
extern const char POCL_NAME[], CPU_NAME[], GRAPHICS_NAME[], INTEL_VENDOR[], INTEL_RUNS_NAME[];

#endif
