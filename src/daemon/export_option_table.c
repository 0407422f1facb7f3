// SPDX-License-Identifier: Apache-2.0
#include "daemon/export_option_table.h"

#define AT(field) offsetof(struct export_options, field)

const struct export_option export_option_table[] = {
    {"endpoint-url", "URL", "ask this server instead of Amazon's, e.g. http://10.0.0.5:9000",
     EXPORT_GROUP_STORE, TEXT, AT(s3.endpoint_url)},
    {"region", "REGION",
     "region to sign for (default: from the profile, else learned from the store)",
     EXPORT_GROUP_STORE, TEXT, AT(s3.region)},
    {"force-path-style", NULL, "http://host/bucket/key; the default with --endpoint-url",
     EXPORT_GROUP_STORE, PATH_STYLE, AT(s3.addressing)},
    {"virtual-host-style", NULL, "http://bucket.host/key also with --endpoint-url",
     EXPORT_GROUP_STORE, PATH_STYLE, AT(s3.addressing)},
    {"dual-stack", NULL, "Amazon's addresses for IPv4 and IPv6", EXPORT_GROUP_STORE, SWITCH,
     AT(s3.dualstack)},
    {"fips", NULL, "Amazon's FIPS addresses", EXPORT_GROUP_STORE, SWITCH, AT(s3.fips)},
    {"transfer-acceleration", NULL, "Amazon's accelerated addresses", EXPORT_GROUP_STORE, SWITCH,
     AT(s3.accelerate)},
    {"ca-file", "FILE", "PEM file of the authorities trusted for TLS", EXPORT_GROUP_STORE,
     FILE_PATH, AT(s3.ca_file)},
    {"proxy", "URL", "HTTP proxy (default: https_proxy, http_proxy, no_proxy)", EXPORT_GROUP_STORE,
     TEXT, AT(s3.proxy)},
    {"prefix", "PREFIX", "only keys below it; the same as s3://bucket/PREFIX", EXPORT_GROUP_STORE,
     PREFIX, AT(prefix)},
    {"requester-pays", NULL, "agree to pay for the requests", EXPORT_GROUP_STORE, SWITCH,
     AT(s3.requester_pays)},

    {"profile", "NAME", "of ~/.aws/config and ~/.aws/credentials", EXPORT_GROUP_CREDENTIALS, TEXT,
     AT(s3.profile)},
    {"no-sign-request", NULL, "anonymous access", EXPORT_GROUP_CREDENTIALS, SWITCH,
     AT(s3.no_sign_request)},
    {"passwd-file", "FILE", "KEY:SECRET or BUCKET:KEY:SECRET, as s3fs has it",
     EXPORT_GROUP_CREDENTIALS, FILE_PATH, AT(s3.passwd_file)},

    {"retry-timeout", "TIME", "give up (EIO) after this long without progress (default 60s)",
     EXPORT_GROUP_TRANSFER, DURATION, AT(s3.retry_timeout_ns)},
    {"max-connections", "N", "to the store at once (default 64)", EXPORT_GROUP_TRANSFER, COUNT,
     AT(s3.max_connections)},
    {"max-requests-per-second", "N", "sent to the store (default: no limit)", EXPORT_GROUP_TRANSFER,
     COUNT, AT(s3.max_requests_per_s)},
    {"maximum-throughput-gbps", "N", "gigabits a second from the store (default: no limit)",
     EXPORT_GROUP_TRANSFER, GBPS, AT(s3.max_bytes_per_s)},
    {"no-hedging", NULL, "never ask twice for a small object whose answer is late",
     EXPORT_GROUP_TRANSFER, SWITCH, AT(s3.no_hedging)},

    {"read-only", NULL, "accepted for other clients' sake: a mount is read-only",
     EXPORT_GROUP_FILES, READ_ONLY, 0},
    {"metadata-ttl", "SECONDS|minimal|indefinite",
     "how long names and sizes are believed (default 60)", EXPORT_GROUP_FILES, TTL,
     AT(metadata_ttl_ns)},
    {"negative-metadata-ttl", "SECONDS|minimal|indefinite",
     "how long it is believed that a name does not exist (default 5)", EXPORT_GROUP_FILES, TTL,
     AT(negative_ttl_ns)},
    {"allow-other", NULL, "let other users in, as far as file modes allow", EXPORT_GROUP_FILES,
     SWITCH, AT(allow_other)},
    {"allow-root", NULL, "let root in, too", EXPORT_GROUP_FILES, SWITCH, AT(allow_root)},
    {"uid", "USER", "owner of all files (default: who mounts)", EXPORT_GROUP_FILES, USER, AT(uid)},
    {"gid", "GROUP", "group of all files (default: of who mounts)", EXPORT_GROUP_FILES, GROUP,
     AT(gid)},
    {"file-mode", "MODE", "permissions of files (default 0644)", EXPORT_GROUP_FILES, MODE,
     AT(file_mode)},
    {"dir-mode", "MODE", "permissions of directories (default 0755)", EXPORT_GROUP_FILES, MODE,
     AT(dir_mode)},

    {"memory", "SIZE", "for object bytes, never exceeded (default 512M)", EXPORT_GROUP_MEMORY, SIZE,
     AT(memory)},
    {"metadata-memory", "SIZE", "for listed directories (default 256M)", EXPORT_GROUP_MEMORY, SIZE,
     AT(metadata_memory)},
    {"threads", "N", "data loops (default: one a core, at most 4)", EXPORT_GROUP_MEMORY, COUNT,
     AT(threads)},
    {"read-ahead", "SIZE", "largest window of a sequential reader (default 64M)",
     EXPORT_GROUP_MEMORY, SIZE, AT(read_ahead)},
    {"no-read-ahead", NULL, "fetch what is asked for or planned, and nothing else",
     EXPORT_GROUP_MEMORY, SWITCH, AT(no_read_ahead)},
    {"direct-io", NULL, "bypass the kernel's page cache", EXPORT_GROUP_MEMORY, SWITCH,
     AT(direct_io)},

    {"socket", "PATH", "where they connect, or none (default: where libos2g looks)",
     EXPORT_GROUP_SOCKET, SOCKET, AT(socket)},
    {"socket-mode", "MODE", "permissions of the socket (default 0600, with a group 0660)",
     EXPORT_GROUP_SOCKET, MODE, AT(socket_mode)},
    {"socket-group", "GROUP", "group of the socket", EXPORT_GROUP_SOCKET, GROUP, AT(socket_group)},
    {"socket-allow", "USER[,USER]", "who may connect (default: root, who mounts, the group)",
     EXPORT_GROUP_SOCKET, USERS, AT(socket_allow)},
    {"socket-tag", "TAG", "the tag that the device itself tells (QEMU has its own)",
     EXPORT_GROUP_SOCKET, TEXT, AT(socket_tag)},
    {"gpu-memory", "FILE[,FILE]", "files of a machine's memory that are a GPU's",
     EXPORT_GROUP_SOCKET, GPU_FILES, AT(gpu_memory)},
    {"gdd-group", "GROUP", "who may land objects there, beside root and the owner",
     EXPORT_GROUP_SOCKET, GROUP, AT(gdd_group)},

    {"log-level", "LEVEL", "error, warning, info or debug; also info,s3=debug", EXPORT_GROUP_LOG,
     LOG_SPEC, AT(log_level)},
    {"log-directory", "DIR", "write a log file there (default: the system's log)", EXPORT_GROUP_LOG,
     DIRECTORY, AT(log_directory)},
    {NULL},
};
_Static_assert(ARRAY_LEN(export_option_table) <= EXPORT_OPTIONS_MAX, "for the nearest name");

const char *export_option_group_title(enum export_option_group group)
{
    switch (group) {
    case EXPORT_GROUP_STORE:
        return "Server and bucket";
    case EXPORT_GROUP_CREDENTIALS:
        return "Credentials";
    case EXPORT_GROUP_TRANSFER:
        return "Requests";
    case EXPORT_GROUP_FILES:
        return "Files and directories";
    case EXPORT_GROUP_MEMORY:
        return "Memory and speed";
    case EXPORT_GROUP_SOCKET:
        return "Virtual machines and libos2g";
    case EXPORT_GROUP_LOG:
        return "Log";
    case EXPORT_GROUP_ALL:
        break;
    }
    return "";
}
