// SPDX-License-Identifier: Apache-2.0
// os2gd's configuration, and the list of options that a worker reads: the first byte chooses.
#include "daemon/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_file(const char *text)
{
    struct config c;
    char *error = NULL;

    if (config_parse(&c, text, 1000, 1000, &error) < 0) {
        if (!error || !*error)
            abort();
        free(error);
        return;
    }
    // what was taken must be whole
    if (!c.n)
        abort();
    for (size_t i = 0; i < c.n; i++)
        if (!c.exports[i].options->s3.bucket ||
            export_options_place(c.exports[i].options)[0] != '/')
            abort();
    config_fini(&c);
}

static void as_list(const char *list, size_t len)
{
    struct export_options o;
    char *error = NULL;

    export_options_init(&o);
    if (export_options_replay(&o, list, len, &error) < 0 && (!error || !*error))
        abort();
    free(error);
    export_options_fini(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size < 1)
        return 0;
    text = xmemdup(data + 1, size - 1);
    if (data[0] % 2)
        as_list(text, size - 1);
    else
        as_file(text);
    free(text);
    return 0;
}
