// SPDX-License-Identifier: Apache-2.0
// In a file of its own: libos2g needs the rest of text.h, and no OpenSSL.
#include "base/text.h"

#include <ctype.h>
#include <openssl/evp.h>

void text_base64(struct buf *out, const void *data, size_t len)
{
    buf_reserve(out, (len + 2) / 3 * 4);
    out->len += (size_t)EVP_EncodeBlock((unsigned char *)out->data + out->len, data, (int)len);
}

int text_unbase64(struct buf *out, const char *s, size_t len)
{
    size_t pad = 0;
    int n;

    if (len == 0)
        return 0;
    if (len % 4 || len > INT32_MAX)
        return -EINVAL;
    while (pad < 2 && s[len - 1 - pad] == '=')
        pad++;
    // EVP_DecodeBlock would pass over blanks around it and a '=' in it
    for (size_t i = 0; i < len - pad; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '+' && s[i] != '/')
            return -EINVAL;
    buf_reserve(out, len / 4 * 3);
    n = EVP_DecodeBlock((unsigned char *)out->data + out->len, (const unsigned char *)s, (int)len);
    if (n < 0)
        return -EINVAL;
    out->len += (size_t)n - pad;
    out->data[out->len] = 0;
    return 0;
}
