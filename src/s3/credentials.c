// SPDX-License-Identifier: Apache-2.0
#include "s3/credentials.h"

#include "base/clock.h"
#include "base/text.h"
#include "s3/credentials_keys.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

// --- life ---

struct credentials *credentials_ref(struct credentials *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

static void forget(char *s)
{
    if (s)
        OPENSSL_cleanse(s, strlen(s));
    free(s);
}

void credentials_unref(struct credentials *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1)
        return;
    free(c->access_key);
    forget(c->secret_key);
    forget(c->session_token);
    free(c->source);
    free(c);
}

static struct credentials *new_from(const char *source)
{
    struct credentials *c = xcalloc(1, sizeof(*c));

    atomic_init(&c->refs, 1);
    c->source = xstrdup(source);
    return c;
}

struct credentials *credentials_make_anonymous(const char *source)
{
    struct credentials *c = new_from(source);

    c->anonymous = true;
    return c;
}

static bool fits_a_header(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (*s <= ' ' || *s >= 0x7f)
            return false;
    return true;
}

struct credentials *credentials_make(const char *source, const char *access_key,
                                     const char *secret_key, const char *token, int64_t expires_s,
                                     char **ret_error)
{
    struct credentials *c;

    if (!access_key || !secret_key) {
        *ret_error = xasprintf("%s: %s is missing", source,
                               access_key ? "the secret key" : "the access key");
        return NULL;
    }
    if (token && !*token)
        token = NULL;
    // '/' would end the key's part of the Authorization header's Credential
    if (!fits_a_header(access_key) || strpbrk(access_key, "/,") || !fits_a_header(secret_key) ||
        (token && !fits_a_header(token))) {
        *ret_error = xasprintf("%s: the keys are empty or hold characters that keys cannot have "
                               "(a space or a line break that was copied along?)",
                               source);
        return NULL;
    }
    c = new_from(source);
    c->access_key = xstrdup(access_key);
    c->secret_key = xstrdup(secret_key);
    c->session_token = token ? xstrdup(token) : NULL;
    c->expires_s = expires_s;
    return c;
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool credentials_same_keys(const struct credentials *a, const struct credentials *b)
{
    return a->anonymous == b->anonymous && same(a->access_key, b->access_key) &&
           same(a->secret_key, b->secret_key) && same(a->session_token, b->session_token);
}

// --- documents ---

static int two_digits(const char *s)
{
    if (s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9')
        return -1;
    return (s[0] - '0') * 10 + s[1] - '0';
}

int credentials_parse_expiration(const char *s, int64_t *ret)
{
    size_t len = strlen(s);
    const char *zone = len > 6 ? s + len - 6 : s; // "+02:00"
    int hours, minutes, rc;
    char *utc;

    if (clock_parse_iso8601(s, ret) == 0)
        return 0;
    if (*zone != '+' && *zone != '-')
        return -EINVAL;
    hours = two_digits(zone + 1);
    minutes = zone[3] == ':' ? two_digits(zone + 4) : -1;
    if (hours < 0 || hours > 14 || minutes < 0 || minutes > 59)
        return -EINVAL;
    utc = xasprintf("%.*sZ", (int)(zone - s), s);
    rc = clock_parse_iso8601(utc, ret);
    free(utc);
    if (rc == 0)
        *ret -= (*zone == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
    return rc;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static char *why_refused(enum credentials_document kind, const json_t *root)
{
    const char *code = text_of(root, "Code"), *message = text_of(root, "Message");
    const json_t *version = json_object_get(root, "Version");

    if (!json_is_object(root))
        return xstrdup("it gave something that is not a JSON object");
    if (kind == CREDENTIALS_PROCESS &&
        !(json_is_integer(version) && json_integer_value(version) == 1))
        return xstrdup("its answer is not of \"Version\": 1");
    if (kind == CREDENTIALS_METADATA && code && strcmp(code, "Success") != 0)
        return xasprintf("it answered %s%s%s", code, message ? ": " : "", message ? message : "");
    if (kind == CREDENTIALS_SSO && !json_is_object(json_object_get(root, "roleCredentials")))
        return xstrdup("its answer has no \"roleCredentials\"");
    return NULL;
}

static struct credentials *from_json(enum credentials_document kind, const char *source,
                                     const json_t *root, char **ret_error)
{
    static const struct {
        const char *access, *secret, *token;
    } names[] = {[CREDENTIALS_PROCESS] = {"AccessKeyId", "SecretAccessKey", "SessionToken"},
                 [CREDENTIALS_METADATA] = {"AccessKeyId", "SecretAccessKey", "Token"},
                 [CREDENTIALS_SSO] = {"accessKeyId", "secretAccessKey", "sessionToken"}};
    const char *expiration = text_of(root, "Expiration");
    int64_t expires_s = 0;

    if (kind == CREDENTIALS_SSO) {
        root = json_object_get(root, "roleCredentials");
        expires_s = json_integer_value(json_object_get(root, "expiration")) / 1000;
    } else if (expiration && credentials_parse_expiration(expiration, &expires_s) < 0) {
        *ret_error =
            xasprintf("%s: its Expiration \"%.64s\" is not a time (ISO 8601)", source, expiration);
        return NULL;
    }
    return credentials_make(source, text_of(root, names[kind].access),
                            text_of(root, names[kind].secret), text_of(root, names[kind].token),
                            expires_s, ret_error);
}

struct credentials *credentials_from_document(enum credentials_document kind, const char *source,
                                              const char *text, size_t len, char **ret_error)
{
    json_t *root = json_loadb(text, len, 0, NULL);
    char *why = why_refused(kind, root);
    struct credentials *c = NULL;

    if (why)
        *ret_error = xasprintf("%s: %s", source, why);
    else
        c = from_json(kind, source, root, ret_error);
    free(why);
    json_decref(root);
    return c;
}
