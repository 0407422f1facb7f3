// SPDX-License-Identifier: Apache-2.0
#include "host/error.h"

#include "base/buf.h"

#include <os2g/os2g.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SENTENCE_MAX 512

static _Thread_local char sentence[SENTENCE_MAX];

int client_fail(int error, const char *fmt, ...)
{
    char text[SENTENCE_MAX]; // arguments may be the sentence so far
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    memcpy(sentence, text, sizeof(text));
    return error;
}

static const char *text_of(int error)
{
    switch (error) {
    case -ENOTCONN:
        return "the daemon has gone and has not come back in time: see its log, start it again";
    case -ETIMEDOUT:
        return "no answer in time: see the daemon's log, or give it longer (timeout_ms)";
    case -ECANCELED:
        return "given up, as was asked for";
    default:
        return strerror(-error);
    }
}

// What the device says of an object.
static const char *text_of_object(int error)
{
    switch (error) {
    case -ESTALE:
        return "the store has another version of it now: open it again";
    case -EFBIG:
        return "larger than the memory given for it";
    case -EACCES:
        return "the store does not allow it to the daemon's credentials: its log names them";
    case -EIO:
        return "it cannot be got from the store: the daemon's log says why";
    default:
        return text_of(error);
    }
}

int client_fail_errno(int error, const char *what)
{
    return what ? client_fail(error, "%s: %s", what, text_of(error))
                : client_fail(error, "%s", text_of(error));
}

int client_fail_name(int error, const char *name, size_t len)
{
    return client_fail(error, "%.*s: %s", (int)MIN(len, 300), name, text_of_object(error));
}

const char *client_error(void)
{
    return sentence;
}

const char *os2g_last_error(void)
{
    return sentence;
}
