// SPDX-License-Identifier: Apache-2.0
#include "s3d/fault_answer.h"

#include "s3d/options.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/xml.h"

#include <string.h>

void fault_decide(struct request *r)
{
    struct server *s = r->worker->server;
    struct fault_set *set;

    if (!atomic_load_explicit(&s->has_faults, memory_order_relaxed) || r->op == OP_ADMIN)
        return;
    set = server_get_faults(s);
    if (!set)
        return;
    fault_set_decide(set, r->op, r->bucket_name, r->key, &r->fault);
    fault_set_unref(set);
    if (r->fault.action != FAULT_NONE)
        counter_add(&r->worker->counters.faults[r->fault.action], 1);
}

static enum s3_error usual_error(int64_t status)
{
    switch (status) {
    case 403:
        return S3_AccessDenied;
    case 404:
        return S3_NoSuchKey;
    case 503:
        return S3_SlowDown;
    default:
        return S3_InternalError;
    }
}

static void answer_status(struct request *r, const struct fault *f)
{
    response_error_raw(r, (int)f->number, f->text ? f->text : s3_error_code(usual_error(f->number)),
                       "This failure was asked for.", NULL);
    if (f->retry_after_s)
        buf_printf(&r->response.headers, "Retry-After: %lld\r\n", (long long)f->retry_after_s);
}

static void answer_xml200(struct request *r)
{
    response_error(r, S3_InternalError);
    r->response.status = request_header(r, "range") ? 206 : 200;
}

static void answer_redirect(struct request *r, const struct fault *f)
{
    enum s3_error e = f->number == 301 ? S3_PermanentRedirect : S3_TemporaryRedirect;
    struct buf extra = {0};

    if (f->text) {
        const char *scheme_end = strstr(f->text, "://");

        xml_add_element(&extra, "Endpoint", scheme_end ? scheme_end + 3 : f->text);
    }
    response_error_raw(r, (int)f->number, s3_error_code(e), s3_error_message(e), buf_str(&extra));
    buf_free(&extra);
    if (f->text)
        buf_printf(&r->response.headers, "Location: %s%s\r\n", f->text, r->head.target);
    response_header(r, "x-amz-bucket-region", r->worker->server->options->region);
}

static void answer_region(struct request *r, const struct fault *f)
{
    struct buf extra = {0};

    xml_add_element(&extra, "Region", f->text);
    response_error_with(r, S3_AuthorizationHeaderMalformed, NULL, buf_str(&extra));
    buf_free(&extra);
    response_header(r, "x-amz-bucket-region", f->text);
}

bool fault_answers(struct request *r)
{
    const struct fault *f = &r->fault;

    switch (f->action) {
    case FAULT_STATUS:
        answer_status(r, f);
        return true;
    case FAULT_XML200:
        answer_xml200(r);
        return true;
    case FAULT_REDIRECT:
        answer_redirect(r, f);
        return true;
    case FAULT_REGION:
        answer_region(r, f);
        return true;
    default:
        return false;
    }
}
