// SPDX-License-Identifier: Apache-2.0
#include "cli/status_stalls.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

#define SHOWN      3  // epochs, the latest
#define OBJECTS    3  // of the latest
#define KEY_MAX    60 // bytes of a key, its end: the name
#define CAUSES_MAX 16

static double seconds(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static bool waited(const json_t *epoch)
{
    return seconds(epoch, "waited") > 0;
}

struct cause {
    const char *name;
    double seconds;
};

static int larger_first(const void *a, const void *b)
{
    const struct cause *x = a, *y = b;

    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static void show_causes(const json_t *causes)
{
    struct cause sorted[CAUSES_MAX];
    const char *name;
    json_t *value;
    double sum = 0;
    size_t n = 0;

    json_object_foreach((json_t *)causes, name, value)
    {
        if (n == CAUSES_MAX)
            break;
        sorted[n] = (struct cause){name, json_number_value(value)};
        sum += sorted[n++].seconds;
    }
    qsort(sorted, n, sizeof(sorted[0]), larger_first);
    // less is not worth the line's length
    for (size_t i = 0; i < n && sorted[i].seconds > sum / 200; i++)
        printf("%s%s %.0f %%", i ? ", " : ": ", sorted[i].name, sorted[i].seconds / sum * 100);
}

static void show_epoch(const json_t *epoch, bool first)
{
    const json_t *number = json_object_get(epoch, "epoch");
    bool reads = waited(json_object_get(epoch, "reads")),
         fetches = waited(json_object_get(epoch, "fetches"));

    printf("%-24s  ", first ? "stalls" : "");
    if (json_is_integer(number))
        printf("epoch %lld: ", (long long)json_integer_value(number));
    else
        printf("no plan: ");
    printf("%s waited %.2f s of %.1f s",
           !fetches ? "readers"
           : reads  ? "readers and fetches"
                    : "fetches",
           seconds(epoch, "waited"), seconds(epoch, "seconds"));
    show_causes(json_object_get(epoch, "causes"));
    putchar('\n');
}

// The end of it. Whoever can write to the bucket, or fetch from it, chooses keys, and a terminal
// does what control characters say, U+0080 to U+009F too: they show as '?'.
static void show_key(const char *key, size_t len)
{
    const unsigned char *s = (const unsigned char *)key;
    size_t i = len > KEY_MAX ? len - KEY_MAX : 0;

    // not into the middle of a character
    while (i && i < len && s[i] >> 6 == 2)
        i++;
    if (i)
        fputs("...", stdout);
    for (; i < len; i++) {
        bool c1 = s[i] == 0xc2 && i + 1 < len && s[i + 1] < 0xa0;

        putchar(s[i] < 0x20 || s[i] == 0x7f || c1 ? '?' : s[i]);
        i += c1;
    }
}

static void show_objects(const json_t *objects)
{
    const json_t *o;
    size_t i;

    json_array_foreach(objects, i, o)
    {
        const json_t *key = json_object_get(o, "key");
        const char *cause = json_string_value(json_object_get(o, "cause"));

        if (!json_is_string(key) || !cause || i == OBJECTS)
            return;
        printf("%-24s  %.2f s  ", i ? "" : "  slowest", seconds(o, "waited"));
        show_key(json_string_value(key), json_string_length(key));
        printf("  %s\n", cause);
    }
}

void status_show_stalls(const json_t *status)
{
    const json_t *epochs = json_object_get(json_object_get(status, "stalls"), "epochs"), *epoch,
                 *latest = NULL;
    size_t n = json_array_size(epochs), i;
    const char *advice;

    json_array_foreach(epochs, i, epoch)
    {
        if (waited(epoch))
            latest = epoch;
        if (i + SHOWN >= n)
            show_epoch(epoch, i == (n > SHOWN ? n - SHOWN : 0));
    }
    if (!latest)
        return;
    show_objects(json_object_get(latest, "objects"));
    advice = json_string_value(json_object_get(latest, "advice"));
    if (advice)
        printf("%-24s  %s\n", "  advice", advice);
}
