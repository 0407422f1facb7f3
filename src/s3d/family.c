// SPDX-License-Identifier: Apache-2.0
#include "s3d/family.h"

#include "base/text.h"
#include "s3d/synthetic.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- sizes ---

static int parse_size(struct family_size *s, const char *text)
{
    char *copy = xstrdup(text), *second;
    int rc = -EINVAL;

    if (text_starts_with(copy, "uniform:") && (second = strchr(copy, '-'))) {
        *second++ = 0;
        s->kind = SIZE_UNIFORM;
        if (text_parse_size(copy + 8, &s->a) == 0 && text_parse_size(second, &s->b) == 0 &&
            s->a <= s->b)
            rc = 0;
    } else if (text_starts_with(copy, "lognormal:") && (second = strchr(copy, ','))) {
        char *end;

        *second++ = 0;
        s->kind = SIZE_LOGNORMAL;
        s->sigma = strtod(second, &end);
        if (text_parse_size(copy + 10, &s->a) == 0 && *second && !*end && s->sigma >= 0 &&
            s->sigma <= 10)
            rc = 0;
    } else {
        s->kind = SIZE_FIXED;
        rc = text_parse_size(copy, &s->a);
    }
    free(copy);
    return rc;
}

static uint64_t draw_size(const struct family_size *s, const char *bucket, const char *key)
{
    uint64_t luck;
    double u, v, z;

    if (s->kind == SIZE_FIXED)
        return s->a;
    luck = s3d_name_luck(bucket, key);
    if (s->kind == SIZE_UNIFORM)
        return s->a + (uint64_t)((unsigned __int128)luck * (s->b - s->a + 1) >> 64);
    // Box and Muller's transform, of two numbers in (0, 1)
    u = ((double)(luck >> 32) + 0.5) * 0x1p-32;
    v = ((double)(luck & UINT32_MAX) + 0.5) * 0x1p-32;
    z = sqrt(-2 * log(u)) * cos(2 * M_PI * v);
    return (uint64_t)MIN((double)s->a * exp(s->sigma * z), 0x1p50);
}

// --- patterns ---

static unsigned digits(uint64_t largest)
{
    unsigned n = 1;

    while (largest /= 10)
        n++;
    return n;
}

// Splits the pattern at its numbers; the widths given are kept, 0 where none is.
static int parse_pattern(struct family *f, const char *pattern)
{
    struct buf literal = {0};

    for (const char *p = pattern; *p; p++) {
        unsigned width = 0;

        if (*p != '%') {
            buf_add(&literal, p, 1);
            continue;
        }
        if (*++p == '%') {
            buf_add(&literal, p, 1);
            continue;
        }
        if (*p == '0')
            while (isdigit((unsigned char)*p) && width < 100)
                width = width * 10 + (unsigned)(*p++ - '0');
        if (*p != 'd' || width > 19 || f->n_numbers == FAMILY_MAX_NUMBERS) {
            buf_free(&literal);
            return -EINVAL;
        }
        f->widths[f->n_numbers] = width;
        f->literals[f->n_numbers++] = buf_steal(&literal);
    }
    f->literals[f->n_numbers] = buf_steal(&literal);
    return 0;
}

static char *check_counts(struct family *f, const char *pattern)
{
    f->n_keys = 1;
    f->key_len = strlen(f->literals[f->n_numbers]);
    for (unsigned i = 0; i < f->n_numbers; i++) {
        unsigned need = digits(f->counts[i] - 1);

        if (f->widths[i] && f->widths[i] < need)
            return xasprintf("%s: %llu numbers need %u digits", pattern,
                             (unsigned long long)f->counts[i], need);
        f->widths[i] = MAX(f->widths[i], need);
        if (__builtin_mul_overflow(f->n_keys, f->counts[i], &f->n_keys))
            return xasprintf("%s: too many keys", pattern);
        f->key_len += strlen(f->literals[i]) + f->widths[i];
    }
    if (f->key_len == 0 || f->key_len > FAMILY_MAX_KEY)
        return xasprintf("%s: keys have 1 to %d bytes", pattern, FAMILY_MAX_KEY);
    return NULL;
}

// NULL, or what is wrong with it.
static char *parse_family(struct family *f, char *spec)
{
    char *save, *pattern = strtok_r(spec, " \t\n", &save), *size, *word;
    unsigned n = 0;

    size = strtok_r(NULL, " \t\n", &save);
    if (!size)
        return xasprintf("\"%s\": a family is PATTERN SIZE [x COUNT]...", pattern);
    if (parse_pattern(f, pattern) < 0)
        return xasprintf(
            "%s: numbers are written %%0Nd or %%d, at most %d, and a percent sign %%%%", pattern,
            FAMILY_MAX_NUMBERS);
    if (parse_size(&f->size, size) < 0)
        return xasprintf("%s: a size is like 100K, uniform:1K-1M or lognormal:100K,0.5", size);
    while ((word = strtok_r(NULL, " \t\n", &save))) {
        if (!strcmp(word, "x"))
            continue;
        word += *word == 'x';
        if (n == FAMILY_MAX_NUMBERS || text_parse_u64(word, &f->counts[n]) < 0 || !f->counts[n])
            return xasprintf("%s: \"%s\" is no count", pattern, word);
        n++;
    }
    if (n != f->n_numbers)
        return xasprintf("%s: %u numbers in the pattern, but %u counts", pattern, f->n_numbers, n);
    return check_counts(f, pattern);
}

int family_set_parse(struct family_set *s, const char *spec, char **ret_why)
{
    char *copy = xstrdup(spec), *save, *why = NULL;

    *s = (struct family_set){0};
    for (char *part = strtok_r(copy, ";", &save); part && !why; part = strtok_r(NULL, ";", &save)) {
        if (part[strspn(part, " \t\n")] == 0)
            continue;
        s->items = xrealloc(s->items, (s->len + 1) * sizeof(s->items[0]));
        s->items[s->len] = (struct family){0};
        why = parse_family(&s->items[s->len++], part);
    }
    free(copy);
    if (!why)
        return 0;
    family_set_fini(s);
    *ret_why = why;
    return -EINVAL;
}

void family_set_fini(struct family_set *s)
{
    for (size_t i = 0; i < s->len; i++)
        for (size_t j = 0; j < ARRAY_LEN(s->items[i].literals); j++)
            free(s->items[i].literals[j]);
    free(s->items);
    *s = (struct family_set){0};
}

// --- keys and their numbers ---

static void format_key(const struct family *f, uint64_t index, char *out)
{
    char *p = out + f->key_len;

    *p = 0;
    for (unsigned i = f->n_numbers + 1; i-- > 0;) {
        size_t n = strlen(f->literals[i]);
        uint64_t number;

        p -= n;
        memcpy(p, f->literals[i], n);
        if (i == 0)
            break;
        number = index % f->counts[i - 1];
        index /= f->counts[i - 1];
        for (unsigned w = f->widths[i - 1]; w-- > 0; number /= 10)
            *--p = (char)('0' + number % 10);
    }
}

static bool has_key(const struct family *f, const char *key, size_t len)
{
    if (len != f->key_len)
        return false;
    for (unsigned i = 0;; i++) {
        size_t n = strlen(f->literals[i]);
        uint64_t number = 0;

        if (memcmp(key, f->literals[i], n) != 0)
            return false;
        key += n;
        if (i == f->n_numbers)
            return true;
        for (unsigned w = f->widths[i]; w-- > 0; key++) {
            if (*key < '0' || *key > '9')
                return false;
            number = number * 10 + (uint64_t)(*key - '0');
        }
        if (number >= f->counts[i])
            return false;
    }
}

int family_set_find(const struct family_set *s, const char *bucket, const char *key,
                    uint64_t *ret_size)
{
    size_t len = strlen(key);

    for (size_t i = 0; i < s->len; i++) {
        if (has_key(&s->items[i], key, len)) {
            *ret_size = draw_size(&s->items[i].size, bucket, key);
            return 0;
        }
    }
    return -ENOENT;
}

// The family's first key >= key (> key if after); false at its end.
static bool family_next(const struct family *f, const char *key, bool after, char *out)
{
    int side = strncmp(f->literals[0], key, strlen(f->literals[0]));
    uint64_t low = 0, high = side > 0 ? 0 : f->n_keys;

    // what all its keys begin with tells most families apart
    if (side < 0)
        return false;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order;

        format_key(f, middle, out);
        order = strcmp(out, key);
        if (order < 0 || (order == 0 && after))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == f->n_keys)
        return false;
    format_key(f, low, out);
    return true;
}

int family_set_next(const struct family_set *s, const char *bucket, const char *key, bool after,
                    char out[static FAMILY_MAX_KEY + 1], uint64_t *ret_size)
{
    const struct family *best = NULL;
    char candidate[FAMILY_MAX_KEY + 1];

    for (size_t i = 0; i < s->len; i++) {
        const struct family *f = &s->items[i];

        if (best && strncmp(f->literals[0], out, strlen(f->literals[0])) > 0)
            continue;
        if (!family_next(f, key, after, candidate) || (best && strcmp(candidate, out) >= 0))
            continue;
        memcpy(out, candidate, f->key_len + 1);
        best = f;
    }
    if (!best)
        return -ENOENT;
    *ret_size = draw_size(&best->size, bucket, out);
    return 0;
}
