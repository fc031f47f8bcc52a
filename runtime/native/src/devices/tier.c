/* The tier of a device by its names, as core/tier.py: the rules of families and vendors come from there. */
#include "tier.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 1024, LONGEST_SLUG = 120, HASH_CHARACTERS = 8 };

/* --- patterns ----------------------------------------------------------------------------------------------------- */

/* Letters of other alphabets count as signs. */
static bool is_word(char one) { return isalnum((unsigned char)one) || one == '_'; }

/* Where a pattern comes to the next alternative of its group or to the group's end. */
static const char *next_bar(const char *pattern) {
    for (size_t depth = 0;; pattern++) {
        if (!depth && (*pattern == '|' || *pattern == ')')) return pattern;
        if (*pattern == '(') depth++;
        if (*pattern == ')') depth--;
        if (*pattern == '\\') pattern++;
    }
}

/* Whether a text ends with the characters up to a pattern's '>'. */
static bool stands_before(const char *pattern, const char *text, const char *begin) {
    const size_t length = strcspn(pattern, ">");
    return (size_t)(text - begin) >= length && !strncmp(text - length, pattern, length);
}

/* The end of what a pattern fits at a place of a text, or NULL. begin: of the text. */
static const char *fitted(const char *pattern, const char *text, const char *begin) {
    const char *end;
    for (;; pattern++) switch (*pattern) {
        case 0: return text;
        case ')': break;
        case '|': /* one of a group has fitted: others do not count */
            do pattern = next_bar(pattern + 1);
            while (*pattern == '|');
            break;
        case '(':
            do
                if ((end = fitted(++pattern, text, begin))) return end;
            while (*(pattern = next_bar(pattern)) == '|');
            return NULL;
        case '*':
            while (!(end = fitted(pattern + 1, text, begin)) && *text) text++;
            return end;
        case '%':
            if (is_word(*text) == (text > begin && is_word(text[-1]))) return NULL;
            break;
        case '^':
            if (text > begin) return NULL;
            break;
        case '$':
            if (*text) return NULL;
            break;
        case '&':
            if (!is_word(*text)) return NULL;
            break;
        case '<':
            if (stands_before(++pattern, text, begin)) return NULL;
            pattern += strcspn(pattern, ">");
            break;
        case '#':
            if (!isdigit((unsigned char)*text++)) return NULL;
            break;
        case '[':
            end = pattern + strcspn(pattern, "]");
            if (!*text || !memchr(pattern + 1, *text++, (size_t)(end - pattern - 1))) return NULL;
            pattern = end;
            break;
        case '\\': pattern++; /* fall through */
        default:
            if (*text++ != *pattern) return NULL;
        }
}

static bool contains(const char *text, const char *pattern) {
    for (const char *at = text;; at++) {
        if (fitted(pattern, at, text)) return true;
        if (!*at) return false;
    }
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* The mark (R), (TM) or (C) that a text begins with has so many characters. */
static size_t mark_of(const char *text) {
    static const char *const MARKS[] = {"(r)", "(tm)", "(c)"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = 0;
        while (MARKS[i][length] && tolower((unsigned char)text[length]) == MARKS[i][length]) length++;
        if (!MARKS[i][length]) return length;
    }
    return 0;
}

/* Lower-case letters, digits and dashes; what is too long or has other letters is told apart by a hash. */
static void slug_of(const char *text, const char *otherwise, char slug[TIER_TEXT_BYTES]) {
    size_t length = 0, written = 0;
    bool is_ascii = true, gap = false;
    for (const char *at = text; *at;) {
        const size_t mark = mark_of(at);
        const char one = (char)tolower((unsigned char)*at);
        is_ascii &= !((unsigned char)*at & 0x80);
        at += mark ? mark : 1;
        if (mark || !isalnum((unsigned char)one)) {
            gap = true;
            continue;
        }
        if (gap && length && length++ < LONGEST_SLUG) slug[written++] = '-';
        if (length++ < LONGEST_SLUG) slug[written++] = one;
        gap = false;
    }
    while (written && slug[written - 1] == '-') written--;
    slug[written] = 0;
    if (!*text) snprintf(slug, TIER_TEXT_BYTES, "%s", otherwise);
    if (!*text || (length && length <= LONGEST_SLUG && is_ascii)) return;
    uint8_t digest[32];
    char hashed[65];
    sha256((const uint8_t *)text, strlen(text), digest);
    hex(digest, hashed);
    if (!written) written = (size_t)snprintf(slug, TIER_TEXT_BYTES, "%s", otherwise);
    snprintf(slug + written, TIER_TEXT_BYTES - written, "-%.*s", (int)HASH_CHARACTERS, hashed);
}

/* A text without white space at its ends, with one space in place of each other. */
static void collapse(const char *text, char room[NAME_BYTES]) {
    size_t length = 0;
    for (; *text && length + 2 < NAME_BYTES; text++) {
        const bool space = isspace((unsigned char)*text);
        if (space && length && room[length - 1] != ' ') room[length++] = ' ';
        if (!space) room[length++] = *text;
    }
    if (length && room[length - 1] == ' ') length--;
    room[length] = 0;
}

static void lower(const char *text, char room[NAME_BYTES]) {
    size_t length = 0;
    for (; text[length] && length + 1 < NAME_BYTES; length++) room[length] = (char)tolower((unsigned char)text[length]);
    room[length] = 0;
}

/* The exact model: an Adreno's name has no number, its version has, in the word behind "Adreno". */
static void model_of(const identity *device, char model[NAME_BYTES]) {
    char version[NAME_BYTES], lowered[NAME_BYTES];
    collapse(device->name, model);
    collapse(device->device_version, version);
    lower(model, lowered);
    if (!contains(lowered, "adreno")) return;
    for (const char *at = version; (at = strstr(at, "Adreno")); at++) {
        const size_t first = strcspn(at, " "), second = at[first] ? strcspn(at + first + 1, " ") : 0;
        if (!second) continue;
        memcpy(model, at, first + 1 + second);
        model[first + 1 + second] = 0;
        return;
    }
}

/* --- families ----------------------------------------------------------------------------------------------------- */

static const tier_rule *rule_of(const tier_rule *rules, const char *text) {
    while (rules->pattern && !contains(text, rules->pattern)) rules++;
    return rules;
}

/* lowered: the model in lower case, of which most rules are. */
static bool is_cpu(const char *model, const char *lowered) {
    return contains(lowered, CPU_NAME) && !contains(model, GRAPHICS_NAME);
}

/* The family and the maker of a model, NULL where no rule knows. */
static tier_rule family_of(const char *model, const char *vendor) {
    char lowered[NAME_BYTES];
    lower(model, lowered);
    const char *pocl = fitted(POCL_NAME, model, model);
    const char *cpu_vendor = rule_of(CPU_VENDORS, pocl ? lowered + (pocl - model) : lowered)->vendor;
    if (pocl) {
        const char *family = rule_of(POCL_MARCHES, lowered + (pocl - model))->family;
        return (tier_rule){NULL, cpu_vendor, family ? family : "cpu"};
    }
    const tier_rule by_intel = {NULL, cpu_vendor, "cpu-intel-runtime"};
    if (contains(vendor, INTEL_VENDOR) && contains(model, INTEL_RUNS_NAME)) return by_intel; /* it may have graphics */
    const bool cpu = is_cpu(model, lowered);
    return cpu ? by_intel : *rule_of(GPU_RULES, lowered);
}

tier tier_of(const identity *device) {
    tier found;
    char model[NAME_BYTES];
    model_of(device, model);
    slug_of(model, "device", found.model);
    const tier_rule rule = family_of(model, device->vendor);
    snprintf(found.family, sizeof found.family, "%s", rule.family ? rule.family : found.model);
    snprintf(found.vendor, sizeof found.vendor, "%s", rule.vendor ? rule.vendor : "");
    if (!rule.vendor) slug_of(device->vendor, "unknown", found.vendor);
    return found;
}
