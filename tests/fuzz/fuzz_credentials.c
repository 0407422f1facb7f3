// SPDX-License-Identifier: Apache-2.0
// What sources of credentials answer: STS's XML, the JSON documents, URLs. The first byte chooses.
#include "s3/credentials_keys.h"
#include "s3/sts_answer.h"
#include "s3/url.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_document(enum credentials_document kind, const char *text, size_t len)
{
    char *error = NULL;
    struct credentials *c = credentials_from_document(kind, "source", text, len, &error);

    if (!c && !error)
        abort(); // a refusal says why
    credentials_unref(c);
    free(error);
}

static void read_url(const char *text, size_t len)
{
    char *copy = xstrndup(text, len), *error = NULL;
    struct url u;

    if (url_parse(copy, &u, &error) == 0) {
        struct buf host = {0};

        url_host_header(&u, &host);
        if (u.target[0] != '/' || u.port == 0)
            abort();
        buf_free(&host);
    }
    free(error);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;
    struct sts_answer a;

    if (size == 0)
        return 0;
    switch (data[0]) {
    case 'S':
        sts_answer_parse(&a, text, size - 1);
        sts_answer_fini(&a);
        break;
    case 'P':
        read_document(CREDENTIALS_PROCESS, text, size - 1);
        break;
    case 'M':
        read_document(CREDENTIALS_METADATA, text, size - 1);
        break;
    case 'O':
        read_document(CREDENTIALS_SSO, text, size - 1);
        break;
    case 'U':
        read_url(text, size - 1);
        break;
    }
    return 0;
}
