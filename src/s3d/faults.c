// SPDX-License-Identifier: Apache-2.0
#include "s3d/faults.h"

#include "base/rand.h"
#include "base/text.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct rule {
    char *op, *pattern;
    double probability;      // or, when 0:
    uint64_t nth, nth_count; // from the nth match on, that many
    struct fault fault;      // text is owned
    atomic_uint_fast64_t matched, fired;
};

struct fault_set {
    atomic_uint refs;
    uint64_t seed;
    struct rule *rules;
    size_t n_rules;
    char *text;
};

static const char *const action_names[] = {
#define X(id, name) [FAULT_##id] = name,
    S3D_FAULTS(X)
#undef X
};

const char *fault_action_name(enum fault_action a)
{
    return action_names[a];
}

// --- the rules' text ---

static int parse_at(const char *s, struct fault_at *at)
{
    char *end;

    if (!strcmp(s, "head")) {
        at->kind = FAULT_AT_HEAD;
        return 0;
    }
    if (text_ends_with(s, "%")) {
        at->kind = FAULT_AT_FRACTION;
        at->fraction = strtod(s, &end) / 100;
        return !strcmp(end, "%") && at->fraction >= 0 && at->fraction <= 1 ? 0 : -EINVAL;
    }
    at->kind = FAULT_AT_BYTE;
    return text_parse_size(s, &at->byte);
}

static int parse_when(const char *s, struct rule *r)
{
    char *end;

    if (!strcmp(s, "always")) {
        r->probability = 1;
        return 0;
    }
    if (text_starts_with(s, "nth=")) {
        r->nth_count = 1;
        r->nth = strtoull(s + 4, &end, 10);
        if (*end == ',') {
            if (!strcmp(end, ",")) // "nth=5,": all from the fifth on
                r->nth_count = UINT64_MAX;
            else if (text_parse_u64(end + 1, &r->nth_count) < 0)
                return -EINVAL;
            return r->nth ? 0 : -EINVAL;
        }
        return *end == 0 && r->nth ? 0 : -EINVAL;
    }
    r->probability = strtod(s, &end);
    if (!strcmp(end, "%"))
        r->probability /= 100;
    else if (*end || end == s)
        return -EINVAL;
    return r->probability > 0 && r->probability <= 1 ? 0 : -EINVAL;
}

static int parse_number(const char *s, int64_t *ret)
{
    uint64_t n;
    int rc = text_parse_size(s, &n);

    if (rc == 0 && n > INT64_MAX)
        return -ERANGE;
    if (rc == 0)
        *ret = (int64_t)n;
    return rc;
}

static int parse_status(struct fault *f, char **args, unsigned n)
{
    if (n < 1 || parse_number(args[0], &f->number) < 0 || f->number < 200 || f->number > 599)
        return -EINVAL;
    for (unsigned i = 1; i < n; i++) {
        if (text_starts_with(args[i], "retry-after=")) {
            if (parse_number(args[i] + 12, &f->retry_after_s) < 0)
                return -EINVAL;
        } else {
            f->text = args[i];
        }
    }
    return f->action == FAULT_REDIRECT && (f->number < 300 || f->number > 399) ? -EINVAL : 0;
}

static int parse_arguments(struct fault *f, char **args, unsigned n)
{
    switch (f->action) {
    case FAULT_STATUS:
    case FAULT_REDIRECT:
        return parse_status(f, args, n);
    case FAULT_RESET:
        return n > 0 ? parse_at(args[0], &f->at) : 0;
    case FAULT_CLOSE:
        f->at = (struct fault_at){.kind = FAULT_AT_FRACTION, .fraction = 0.5};
        return n > 0 ? parse_at(args[0], &f->at) : 0;
    case FAULT_STALL:
        f->ns = UINT64_MAX;
        if (n < 1 || parse_at(args[0], &f->at) < 0)
            return -EINVAL;
        return n > 1 ? text_parse_duration(args[1], &f->ns) : 0;
    case FAULT_DELAY:
        return n > 0 ? text_parse_duration(args[0], &f->ns) : -EINVAL;
    case FAULT_SHORT:
    case FAULT_LONG:
    case FAULT_GARBAGE:
    case FAULT_RATE:
        return n > 0 && parse_number(args[0], &f->number) == 0 && f->number > 0 ? 0 : -EINVAL;
    case FAULT_CONTENT_RANGE:
        f->number = 1;
        return n > 0 ? parse_number(args[0], &f->number) : 0;
    case FAULT_ETAG:
        f->text = n > 0 ? args[0] : "wrong";
        return !strcmp(f->text, "wrong") || !strcmp(f->text, "changing") ? 0 : -EINVAL;
    case FAULT_REGION:
        f->text = n > 0 ? args[0] : NULL;
        return f->text ? 0 : -EINVAL;
    default:
        return n == 0 ? 0 : -EINVAL;
    }
}

static bool op_is_known(const char *name)
{
    if (!strcmp(name, "*"))
        return true;
    for (int i = 0; i < OP_COUNT; i++)
        if (!strcasecmp(name, op_name(i)) || !strcasecmp(name, op_class(i)))
            return true;
    return false;
}

// NULL, or what is wrong with it.
static char *parse_rule(struct fault_set *s, char **words, unsigned n)
{
    struct rule *r;

    if (n < 4)
        return xasprintf("expected OPERATION KEY-PATTERN WHEN ACTION");
    if (!op_is_known(words[0]))
        return xasprintf("\"%s\" is no operation", words[0]);
    s->rules = xrealloc(s->rules, (s->n_rules + 1) * sizeof(s->rules[0]));
    r = &s->rules[s->n_rules++];
    *r = (struct rule){.op = xstrdup(words[0]), .pattern = xstrdup(words[1])};
    if (parse_when(words[2], r) < 0)
        return xasprintf("\"%s\": expected a probability, nth=N[,COUNT] or always", words[2]);
    for (int i = FAULT_NONE + 1; i < FAULT_COUNT; i++)
        if (!strcmp(words[3], action_names[i]))
            r->fault.action = i;
    if (r->fault.action == FAULT_NONE)
        return xasprintf("\"%s\" is no action", words[3]);
    if (parse_arguments(&r->fault, words + 4, n - 4) < 0) {
        r->fault.text = NULL;
        return xasprintf("wrong arguments of %s", words[3]);
    }
    r->fault.text = r->fault.text ? xstrdup(r->fault.text) : NULL;
    return NULL;
}

static char *parse_line(struct fault_set *s, char *line)
{
    char *words[10], *save;
    unsigned n = 0;

    line[strcspn(line, "#")] = 0;
    for (char *w = strtok_r(line, " \t\r", &save); w; w = strtok_r(NULL, " \t\r", &save)) {
        if (n == ARRAY_LEN(words))
            return xasprintf("too many words");
        words[n++] = w;
    }
    if (n == 0)
        return NULL;
    if (n == 2 && !strcmp(words[0], "seed"))
        return text_parse_u64(words[1], &s->seed) < 0 ? xasprintf("seed: expected a number") : NULL;
    return parse_rule(s, words, n);
}

int fault_set_parse(struct fault_set **ret, const char *text, char **ret_why)
{
    struct fault_set *s = xcalloc(1, sizeof(*s));
    char *copy = xstrdup(text), *rest = copy, *line, *why = NULL;
    unsigned number = 0;

    s->refs = 1;
    s->seed = 1;
    s->text = xstrdup(text);
    while ((line = strsep(&rest, "\n")) && !why) {
        number++;
        why = parse_line(s, line);
    }
    free(copy);
    if (why) {
        *ret_why = xasprintf("line %u: %s", number, why);
        free(why);
        fault_set_unref(s);
        return -EINVAL;
    }
    *ret = s;
    return 0;
}

struct fault_set *fault_set_ref(struct fault_set *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void fault_set_unref(struct fault_set *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < s->n_rules; i++) {
        free(s->rules[i].op);
        free(s->rules[i].pattern);
        free((char *)s->rules[i].fault.text);
    }
    free(s->rules);
    free(s->text);
    free(s);
}

const char *fault_set_text(const struct fault_set *s)
{
    return s->text;
}

// --- deciding ---

static bool rule_matches(const struct rule *r, enum op op, const char *key, const char *path)
{
    if (strcmp(r->op, "*") != 0 && strcasecmp(r->op, op_name(op)) != 0 &&
        strcasecmp(r->op, op_class(op)) != 0)
        return false;
    return !strcmp(r->pattern, "*") || fnmatch(r->pattern, key, 0) == 0 ||
           fnmatch(r->pattern, path, 0) == 0;
}

static bool rule_fires(const struct fault_set *s, size_t i, uint64_t nth)
{
    const struct rule *r = &s->rules[i];
    struct rand rand;

    if (r->probability == 0)
        return nth >= r->nth && nth - r->nth < r->nth_count;
    if (r->probability == 1)
        return true;
    rand_seed(&rand, s->seed * 0x9e3779b97f4a7c15 + (i << 48) + nth);
    return rand_unit(&rand) < r->probability;
}

void fault_set_decide(struct fault_set *s, enum op op, const char *bucket, const char *key,
                      struct fault *f)
{
    char path[2048];

    f->action = FAULT_NONE;
    snprintf(path, sizeof(path), "%s/%s", bucket, key);
    for (size_t i = 0; i < s->n_rules; i++) {
        struct rule *r = &s->rules[i];

        // every rule counts all that it matches, so that "nth" does not depend on its neighbours
        if (!rule_matches(r, op, key, path) ||
            !rule_fires(s, i, atomic_fetch_add(&r->matched, 1) + 1) || f->action != FAULT_NONE)
            continue;
        *f = r->fault;
        f->serial = atomic_fetch_add(&r->fired, 1) + 1;
        f->set = fault_set_ref(s);
    }
}

void fault_release(struct fault *f)
{
    fault_set_unref(f->set);
    *f = (struct fault){0};
}
