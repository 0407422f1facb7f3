// SPDX-License-Identifier: Apache-2.0
#include "s3d/options.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help_text[] =
    "usage: os2g-s3d [serve] [options]\n"
    "       os2g-s3d bytes BUCKET/KEY OFFSET LENGTH [--generation N] [--md5 | --sha256]\n"
    "       os2g-s3d issue-credentials URL\n"
    "       os2g-s3d table\n"
    "\n"
    "  --listen [HOST:]PORT        default 127.0.0.1:0, a free port\n"
    "  --port-file FILE            the port is written there when the server is ready\n"
    "  --data DIR                  each subdirectory is a bucket\n"
    "  --synthetic SPEC            \"NAME: PATTERN SIZE [x COUNT]...; ...\", may be given again\n"
    "  --bucket NAME               a bucket that is empty at first, may be given again\n"
    "  --requester-pays BUCKET     needs x-amz-request-payer\n"
    "  --access-key K --secret-key S   may be given again; default os2g and os2g-secret\n"
    "  --auth-file FILE            ACCESS SECRET [rights=...] [prefix=...] a line\n"
    "  --anonymous                 unsigned reading and listing is allowed\n"
    "  --region NAME               default us-east-1\n"
    "  --clock-offset SECONDS      the server's clock is off\n"
    "  --domain NAME               buckets are also found as BUCKET.NAME\n"
    "  --tls-cert FILE --tls-key FILE\n"
    "  --threads N                 default: one for each processor\n"
    "  --latency SPEC              10ms, uniform:5ms-20ms, lognormal:10ms,0.5, 10ms,p99=200ms\n"
    "  --bandwidth BYTES           a second, of each connection\n"
    "  --bandwidth-total BYTES     a second, of all together\n"
    "  --idle-timeout DURATION     for kept-alive connections\n"
    "  --max-requests N            on one connection\n"
    "  --faults FILE               scripted misbehaviour, see os2g-s3d(1)\n"
    "  --log-requests FILE\n"
    "  --web-identity-token TEXT   STS AssumeRoleWithWebIdentity at /\n"
    "  --imds ROLE                 instance metadata (IMDSv2) at /latest/\n"
    "  --container-token TEXT      container credentials at /credentials\n"
    "  --session-lifetime SECONDS  of issued key pairs, default 3600\n";

static int complain(const char *option, const char *why)
{
    fprintf(stderr, "os2g-s3d: %s: %s\n", option, why);
    return -EINVAL;
}

// --- options that are more than a word ---

static int parse_listen(struct options *o, const char *value)
{
    const char *colon = strrchr(value, ':'), *port = colon ? colon + 1 : value;
    uint64_t n;

    if (text_parse_u64(port, &n) < 0 || n > UINT16_MAX)
        return -EINVAL;
    o->port = (uint16_t)n;
    if (!colon)
        return 0;
    free(o->listen_host);
    if (*value == '[' && colon[-1] == ']')
        o->listen_host = xstrndup(value + 1, (size_t)(colon - value) - 2);
    else
        o->listen_host = xstrndup(value, (size_t)(colon - value));
    return 0;
}

static int add_bucket(struct options *o, const char *name, size_t len, struct family_set families,
                      bool is_synthetic)
{
    o->buckets = xrealloc(o->buckets, (o->n_buckets + 1) * sizeof(o->buckets[0]));
    o->buckets[o->n_buckets++] =
        (struct option_bucket){xstrndup(name, len), families, is_synthetic};
    if (bucket_name_is_valid(o->buckets[o->n_buckets - 1].name))
        return 0;
    return complain(name, "a bucket's name is 3 to 63 of a-z, 0-9, '.' and '-'");
}

static int parse_synthetic(struct options *o, const char *value)
{
    const char *colon = strchr(value, ':');
    struct family_set families;
    char *why;

    if (!colon)
        return complain("--synthetic", "expected \"NAME: PATTERN SIZE [x COUNT]...; ...\"");
    if (family_set_parse(&families, colon + 1, &why) < 0) {
        complain("--synthetic", why);
        free(why);
        return -EINVAL;
    }
    return add_bucket(o, value, (size_t)(colon - value), families, true);
}

static int add_key_part(struct options *o, const char *value, bool is_secret)
{
    if (is_secret) {
        if (!o->n_keys || o->keys[o->n_keys - 1].secret)
            return complain("--secret-key", "comes after its --access-key");
        o->keys[o->n_keys - 1].secret = value;
        return 0;
    }
    if (o->n_keys && !o->keys[o->n_keys - 1].secret)
        return complain("--access-key", "the one before has no --secret-key");
    o->keys = xrealloc(o->keys, (o->n_keys + 1) * sizeof(o->keys[0]));
    o->keys[o->n_keys++] = (struct option_key){value, NULL};
    return 0;
}

// --- the table of options ---

enum kind {
    TEXT,
    FLAG,
    SIZE,
    DURATION,
    NUMBER,
    OFFSET,
    LATENCY,
    LISTEN,
    SYNTHETIC,
    BUCKET,
    PAYER,
    ACCESS,
    SECRET,
    THREADS
};

static const struct option_rule {
    const char *name;
    enum kind kind;
    size_t offset;
} rules[] = {
    {"--listen", LISTEN, 0},
    {"--port-file", TEXT, offsetof(struct options, port_file)},
    {"--data", TEXT, offsetof(struct options, data_path)},
    {"--synthetic", SYNTHETIC, 0},
    {"--bucket", BUCKET, 0},
    {"--requester-pays", PAYER, 0},
    {"--access-key", ACCESS, 0},
    {"--secret-key", SECRET, 0},
    {"--auth-file", TEXT, offsetof(struct options, auth_file)},
    {"--anonymous", FLAG, offsetof(struct options, anonymous)},
    {"--region", TEXT, offsetof(struct options, region)},
    {"--clock-offset", OFFSET, offsetof(struct options, clock_offset_s)},
    {"--domain", TEXT, offsetof(struct options, domain)},
    {"--tls-cert", TEXT, offsetof(struct options, tls_cert)},
    {"--tls-key", TEXT, offsetof(struct options, tls_key)},
    {"--threads", THREADS, 0},
    {"--latency", LATENCY, 0},
    {"--bandwidth", SIZE, offsetof(struct options, bandwidth)},
    {"--bandwidth-total", SIZE, offsetof(struct options, bandwidth_total)},
    {"--idle-timeout", DURATION, offsetof(struct options, idle_timeout_ns)},
    {"--max-requests", NUMBER, offsetof(struct options, max_requests)},
    {"--faults", TEXT, offsetof(struct options, faults_path)},
    {"--log-requests", TEXT, offsetof(struct options, log_path)},
    {"--web-identity-token", TEXT, offsetof(struct options, web_identity_token)},
    {"--imds", TEXT, offsetof(struct options, imds_role)},
    {"--container-token", TEXT, offsetof(struct options, container_token)},
    {"--session-lifetime", NUMBER, offsetof(struct options, session_lifetime_s)},
};

static int parse_threads(struct options *o, const char *value)
{
    uint64_t n;

    if (text_parse_u64(value, &n) < 0 || n < 1 || n > 1024)
        return -EINVAL;
    o->threads = (unsigned)n;
    return 0;
}

static int parse_offset(int64_t *ret, const char *value)
{
    uint64_t n;
    int rc = text_parse_u64(value + (*value == '-' || *value == '+'), &n);

    if (rc == 0)
        *ret = *value == '-' ? -(int64_t)n : (int64_t)n;
    return rc;
}

static int apply(struct options *o, const struct option_rule *rule, const char *value)
{
    void *field = (char *)o + rule->offset;
    struct family_set none = {0};

    switch (rule->kind) {
    case TEXT:
        *(const char **)field = value;
        return 0;
    case FLAG:
        *(bool *)field = true;
        return 0;
    case SIZE:
        return text_parse_size(value, field);
    case DURATION:
        return text_parse_duration(value, field);
    case NUMBER:
        return text_parse_u64(value, field);
    case OFFSET:
        return parse_offset(field, value);
    case LATENCY:
        return latency_parse(&o->latency, value);
    case LISTEN:
        return parse_listen(o, value);
    case SYNTHETIC:
        return parse_synthetic(o, value);
    case BUCKET:
        return add_bucket(o, value, strlen(value), none, false);
    case PAYER:
        o->requester_pays =
            xrealloc(o->requester_pays, (o->n_requester_pays + 1) * sizeof(o->requester_pays[0]));
        o->requester_pays[o->n_requester_pays++] = value;
        return 0;
    case ACCESS:
    case SECRET:
        return add_key_part(o, value, rule->kind == SECRET);
    case THREADS:
        return parse_threads(o, value);
    }
    return -EINVAL;
}

static int complain_unknown(const char *name)
{
    const char *names[ARRAY_LEN(rules) + 1], *nearest;
    char *why;
    int rc;

    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        names[i] = rules[i].name;
    names[ARRAY_LEN(rules)] = NULL;
    nearest = text_nearest(name, names);
    why = nearest ? xasprintf("unknown option; did you mean %s?", nearest)
                  : xasprintf("unknown option; see os2g-s3d --help");
    rc = complain(name, why);
    free(why);
    return rc;
}

// Takes one option, NAME VALUE or NAME=VALUE; how many words it was.
static int parse_one(struct options *o, int argc, char **argv)
{
    size_t name_len = strcspn(argv[0], "=");
    const char *value = argv[0][name_len] ? argv[0] + name_len + 1 : argc > 1 ? argv[1] : NULL;
    int words = argv[0][name_len] ? 1 : 2;

    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        const struct option_rule *rule = &rules[i];

        if (strlen(rule->name) != name_len || strncmp(rule->name, argv[0], name_len) != 0)
            continue;
        if (rule->kind == FLAG)
            words = 1;
        else if (!value)
            return complain(rule->name, "needs a value");
        if (apply(o, rule, value) < 0)
            return complain(rule->name, "this value cannot be understood");
        return words;
    }
    return complain_unknown(argv[0]);
}

static int check(struct options *o)
{
    if (o->n_keys && !o->keys[o->n_keys - 1].secret)
        return complain("--access-key", "has no --secret-key");
    if (!o->tls_cert != !o->tls_key)
        return complain("--tls-cert", "certificate and key go together");
    if (!o->n_keys && !o->auth_file) {
        add_key_part(o, "os2g", false);
        add_key_part(o, "os2g-secret", true);
    }
    return 0;
}

int options_parse(struct options *o, int argc, char **argv)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    *o = (struct options){.region = "us-east-1", .session_lifetime_s = 3600};
    o->listen_host = xstrdup("127.0.0.1");
    o->threads = processors > 0 ? (unsigned)processors : 1;
    while (argc > 0) {
        int words;

        if (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")) {
            fputs(help_text, stdout);
            return 1;
        }
        words = parse_one(o, argc, argv);
        if (words < 0)
            return words;
        argc -= words;
        argv += words;
    }
    return check(o);
}

void options_fini(struct options *o)
{
    for (size_t i = 0; i < o->n_buckets; i++) {
        free(o->buckets[i].name);
        family_set_fini(&o->buckets[i].families);
    }
    free(o->buckets);
    free(o->keys);
    free(o->requester_pays);
    free(o->listen_host);
}
