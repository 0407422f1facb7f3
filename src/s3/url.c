// SPDX-License-Identifier: Apache-2.0
#include "s3/url.h"

#include "base/text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

static int refuse(const char *text, const char *why, char **ret_error)
{
    *ret_error = xasprintf("\"%s\" is not a usable URL: %s", text, why);
    return -EINVAL;
}

static bool is_address(const char *host)
{
    struct in6_addr addr;

    return inet_pton(AF_INET, host, &addr) == 1 || inet_pton(AF_INET6, host, &addr) == 1;
}

static bool is_host_name(const char *host)
{
    if (!*host)
        return false;
    for (; *host; host++)
        if (!isalnum((unsigned char)*host) && !strchr("-._", *host))
            return false;
    return true;
}

static bool is_target(const char *s)
{
    for (; *s; s++)
        if (*s <= ' ' || *s >= 0x7f || *s == '#')
            return false;
    return true;
}

static int parse_port(const char *s, size_t len, uint16_t *ret)
{
    char digits[6];
    uint64_t v;

    if (len == 0 || len >= sizeof(digits))
        return -EINVAL;
    memcpy(digits, s, len);
    digits[len] = 0;
    if (text_parse_u64(digits, &v) < 0 || v == 0 || v > UINT16_MAX)
        return -EINVAL;
    *ret = (uint16_t)v;
    return 0;
}

int url_parse(const char *text, struct url *ret, char **ret_error)
{
    const char *s = text, *host, *end;
    struct url u = {0};
    bool bracketed;
    size_t host_len;

    if (strncasecmp(s, "https://", 8) == 0) {
        u.tls = true;
        s += 8;
    } else if (strncasecmp(s, "http://", 7) == 0) {
        s += 7;
    } else {
        return refuse(text, "it must begin with http:// or https://", ret_error);
    }
    end = s + strcspn(s, "/?#");
    if (memchr(s, '@', (size_t)(end - s)))
        return refuse(text, "it must not hold a user name", ret_error);

    bracketed = *s == '[';
    host = s + bracketed;
    if (bracketed) {
        host_len = strcspn(host, "]/?#");
        s = host + host_len;
        if (*s++ != ']')
            return refuse(text, "the bracket around its address is not closed", ret_error);
    } else {
        host_len = strcspn(host, ":/?#");
        s += host_len;
    }
    if (host_len >= sizeof(u.host))
        return refuse(text, "its host name is too long", ret_error);
    memcpy(u.host, host, host_len);
    u.host_is_address = is_address(u.host);
    if (bracketed ? !u.host_is_address : !is_host_name(u.host))
        return refuse(text, "its host name is not one", ret_error);

    u.port = u.tls ? 443 : 80;
    if (*s == ':') {
        s++;
        if (parse_port(s, (size_t)(end - s), &u.port) < 0)
            return refuse(text, "its port is not a number from 1 to 65535", ret_error);
    } else if (s != end) {
        return refuse(text, "there is something behind its host", ret_error);
    }
    if (!is_target(end) || strlen(end) + 1 >= sizeof(u.target))
        return refuse(text, "its path is too long or has characters that need escaping", ret_error);
    u.target[0] = '/';
    memcpy(u.target + (*end != '/'), end, strlen(end) + 1);
    *ret = u;
    return 0;
}

void url_host_header(const struct url *u, struct buf *out)
{
    buf_printf(out, strchr(u->host, ':') ? "[%s]" : "%s", u->host);
    if (u->port != (u->tls ? 443 : 80))
        buf_printf(out, ":%u", u->port);
}

const char *aws_domain(const char *region)
{
    static const struct {
        const char *prefix, *domain;
    } partitions[] = {{"cn-", "amazonaws.com.cn"},    {"us-iso-", "c2s.ic.gov"},
                      {"us-isob-", "sc2s.sgov.gov"},  {"us-isof-", "csp.hci.ic.gov"},
                      {"eu-isoe-", "cloud.adc-e.uk"}, {"eusc-", "amazonaws.eu"}};

    for (size_t i = 0; i < ARRAY_LEN(partitions); i++)
        if (text_starts_with(region, partitions[i].prefix))
            return partitions[i].domain;
    return "amazonaws.com";
}

bool aws_region_is_valid(const char *region)
{
    size_t len = strlen(region);

    if (len == 0 || len > 63)
        return false;
    for (; *region; region++)
        if (!isalnum((unsigned char)*region) && *region != '-' && *region != '_')
            return false;
    return true;
}
