// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3/aws_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct aws_config *parsed(enum aws_file kind, const char *text)
{
    struct aws_config *c;
    char *error = NULL;

    assert_int_equal(aws_config_parse(&c, kind, "file", text, strlen(text), &error), 0);
    return c;
}

static void assert_value(enum aws_file kind, const char *text, const char *profile, const char *key,
                         const char *expected)
{
    struct aws_config *c = parsed(kind, text);
    const char *value = aws_config_get(c, AWS_PROFILE, profile, key);

    if (expected)
        assert_string_equal(value, expected);
    else
        assert_null(value);
    aws_config_free(c);
}

static void assert_refused(const char *text, const char *word)
{
    struct aws_config *c;
    char *error = NULL;

    assert_int_equal(aws_config_parse(&c, AWS_CREDENTIALS_FILE, "file", text, strlen(text), &error),
                     -EBADMSG);
    assert_non_null(strstr(error, word));
    free(error);
}

static void config_file_names_profiles_with_the_word_profile(void **state)
{
    const char *text = "[default]\nregion = a\n[profile train]\nregion = b\n[train]\nregion = c\n";

    assert_value(AWS_CONFIG_FILE, text, "default", "region", "a");
    assert_value(AWS_CONFIG_FILE, text, "train", "region", "b");
}

static void credentials_file_names_profiles_plainly(void **state)
{
    const char *text = "[train]\naws_access_key_id=AK\n";

    assert_value(AWS_CREDENTIALS_FILE, text, "train", "aws_access_key_id", "AK");
    assert_value(AWS_CREDENTIALS_FILE, text, "other", "aws_access_key_id", NULL);
}

static void quoted_profile_name_may_hold_spaces(void **state)
{
    assert_value(AWS_CONFIG_FILE, "[ profile  \"my train\" ]\nregion=x\n", "my train", "region",
                 "x");
}

static void keys_are_taken_in_any_case(void **state)
{
    assert_value(AWS_CREDENTIALS_FILE, "[a]\nAWS_Access_Key_Id = AK\n", "a", "aws_access_key_id",
                 "AK");
}

static void value_longer_than_200_bytes_is_kept_whole(void **state)
{
    char token[3001], text[3100];

    memset(token, 'T', 3000);
    token[3000] = 0;
    snprintf(text, sizeof(text), "[a]\naws_session_token = %s\n", token);
    assert_value(AWS_CREDENTIALS_FILE, text, "a", "aws_session_token", token);
}

static void value_may_hold_an_equals_sign(void **state)
{
    assert_value(AWS_CREDENTIALS_FILE, "[a]\nk = b=c==\n", "a", "k", "b=c==");
}

static void comments_are_passed_over(void **state)
{
    const char *text = "# one\n ; two\n[a] # three\nk = v # four\nl = w;x#y\n;m = 1\n";

    assert_value(AWS_CREDENTIALS_FILE, text, "a", "k", "v");
    assert_value(AWS_CREDENTIALS_FILE, text, "a", "l", "w;x#y");
    assert_value(AWS_CREDENTIALS_FILE, text, "a", ";m", NULL);
}

static void credential_process_keeps_what_looks_like_a_comment(void **state)
{
    assert_value(AWS_CONFIG_FILE, "[default]\ncredential_process = get --tag \"a # b\"\n",
                 "default", "credential_process", "get --tag \"a # b\"");
}

static void nested_keys_are_found_by_a_dotted_name(void **state)
{
    const char *text = "[default]\ns3 =\n  addressing_style = path # x\n  max = 1\nregion = r\n";

    assert_value(AWS_CONFIG_FILE, text, "default", "s3.addressing_style", "path");
    assert_value(AWS_CONFIG_FILE, text, "default", "s3.max", "1");
    assert_value(AWS_CONFIG_FILE, text, "default", "region", "r");
    assert_value(AWS_CONFIG_FILE, text, "default", "addressing_style", NULL);
}

static void indented_line_goes_on_with_the_value(void **state)
{
    assert_value(AWS_CONFIG_FILE, "[default]\nk = one\n  two\n", "default", "k", "one\ntwo");
}

static void later_value_wins_and_sections_of_one_name_merge(void **state)
{
    const char *text = "[a]\nk = 1\nl = 1\n[b]\n[a]\nk = 2\n";

    assert_value(AWS_CREDENTIALS_FILE, text, "a", "k", "2");
    assert_value(AWS_CREDENTIALS_FILE, text, "a", "l", "1");
}

static void sessions_and_services_have_names_of_their_own(void **state)
{
    struct aws_config *c = parsed(AWS_CONFIG_FILE, "[sso-session corp]\nsso_region = x\n"
                                                   "[services local]\nsts =\n"
                                                   "  endpoint_url = http://y\n");

    assert_true(aws_config_has(c, AWS_SSO_SESSION, "corp"));
    assert_false(aws_config_has(c, AWS_PROFILE, "corp"));
    assert_string_equal(aws_config_get(c, AWS_SSO_SESSION, "corp", "sso_region"), "x");
    assert_string_equal(aws_config_get(c, AWS_SERVICES, "local", "sts.endpoint_url"), "http://y");
    aws_config_free(c);
}

static void sections_of_other_kinds_are_passed_over(void **state)
{
    const char *text = "[plugins]\n  x = 1\ny =\n  z = 2\n[default]\nregion = r\n";

    assert_value(AWS_CONFIG_FILE, text, "default", "region", "r");
    assert_value(AWS_CONFIG_FILE, text, "plugins", "y", NULL);
}

static void empty_profile_is_there(void **state)
{
    struct aws_config *c = parsed(AWS_CREDENTIALS_FILE, "[a]");

    assert_true(aws_config_has(c, AWS_PROFILE, "a"));
    assert_false(aws_config_has(c, AWS_PROFILE, "b"));
    aws_config_free(c);
}

static void lines_of_windows_and_a_byte_order_mark_are_taken(void **state)
{
    assert_value(AWS_CREDENTIALS_FILE, "\xef\xbb\xbf[a]\r\nk = v\r\n", "a", "k", "v");
}

static void broken_files_are_refused_with_their_line(void **state)
{
    assert_refused("[a]\nk = v\n[b\n", "file, line 3");
    assert_refused("[a] b\n", "line 1");
    assert_refused("[a]\njust words\n", "line 2");
    assert_refused("[a]\n= v\n", "line 2");
    assert_refused("k = v\n", "before the first");
    assert_refused("[a]\nk = \xff\n", "UTF-8");
}

static void missing_file_is_an_empty_configuration(void **state)
{
    struct aws_config *c;
    char *error = NULL;

    assert_int_equal(aws_config_load(&c, AWS_CONFIG_FILE, "/nonexistent/os2g/config", &error), 0);
    assert_null(error);
    assert_false(aws_config_has(c, AWS_PROFILE, "default"));
    aws_config_free(c);
}

static void unreadable_file_is_an_error_that_names_it(void **state)
{
    struct aws_config *c;
    char *error = NULL;

    assert_int_equal(aws_config_load(&c, AWS_CONFIG_FILE, "/proc/self", &error), -EISDIR);
    assert_non_null(strstr(error, "/proc/self"));
    free(error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_file_names_profiles_with_the_word_profile),
        cmocka_unit_test(credentials_file_names_profiles_plainly),
        cmocka_unit_test(quoted_profile_name_may_hold_spaces),
        cmocka_unit_test(keys_are_taken_in_any_case),
        cmocka_unit_test(value_longer_than_200_bytes_is_kept_whole),
        cmocka_unit_test(value_may_hold_an_equals_sign),
        cmocka_unit_test(comments_are_passed_over),
        cmocka_unit_test(credential_process_keeps_what_looks_like_a_comment),
        cmocka_unit_test(nested_keys_are_found_by_a_dotted_name),
        cmocka_unit_test(indented_line_goes_on_with_the_value),
        cmocka_unit_test(later_value_wins_and_sections_of_one_name_merge),
        cmocka_unit_test(sessions_and_services_have_names_of_their_own),
        cmocka_unit_test(sections_of_other_kinds_are_passed_over),
        cmocka_unit_test(empty_profile_is_there),
        cmocka_unit_test(lines_of_windows_and_a_byte_order_mark_are_taken),
        cmocka_unit_test(broken_files_are_refused_with_their_line),
        cmocka_unit_test(missing_file_is_an_empty_configuration),
        cmocka_unit_test(unreadable_file_is_an_error_that_names_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
