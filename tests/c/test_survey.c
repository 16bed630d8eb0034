/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/survey.h"

#include <stdlib.h>

#include "check.h"

enum { SIZE = 6 };

/* Ranks 0, 1, 4 on one host, 2 and 3 on another, 5 alone. */
static void
fill_in(dl_contact_entry *entries)
{
    static const uint64_t hints[SIZE] = {7, 7, 8, 8, 7, 9};

    for (int rank = 0; rank < SIZE; rank++) {
        entries[rank] = (dl_contact_entry){
            .host = {.stack = 1, .hint = hints[rank]}, .tail = 1, .has_address = true};
    }
}

static dl_survey *
survey_of(const dl_contact_entry *entries)
{
    dl_survey *survey = malloc(dl_survey_size(SIZE));

    CHECK(survey != NULL);
    CHECK_OK(dl_survey_make(survey, entries, SIZE));
    return survey;
}

CHECK_CASE(ranks_of_one_host_are_together)
{
    static const int host_of[SIZE] = {0, 0, 1, 1, 0, 2};
    static const int local_rank_of[SIZE] = {0, 1, 0, 1, 2, 0};
    dl_contact_entry entries[SIZE];

    fill_in(entries);
    dl_survey *survey = survey_of(entries);
    CHECK_EQUAL(survey->host_count, 3);
    for (int rank = 0; rank < SIZE; rank++) {
        dl_layout layout = dl_survey_layout(survey, SIZE, rank);
        CHECK_EQUAL(layout.host, host_of[rank]);
        CHECK_EQUAL(layout.local_rank_of[rank], local_rank_of[rank]);
        CHECK_EQUAL(dl_layout_leads(&layout), local_rank_of[rank] == 0);
        CHECK_EQUAL(dl_layout_count(&layout, 0), 3);
        CHECK_EQUAL(dl_layout_ranks(&layout, 0)[2], 4);
        dl_layout_fini(&layout); /* what is borrowed stays */
    }
    CHECK(survey->refused < 0 && survey->other_mode < 0 && survey->unaddressed < 0);
    CHECK(survey->is_whole && !survey->has_loopback && !survey->has_stacks);
    free(survey);
}

CHECK_CASE(the_lowest_rank_at_fault_is_found)
{
    dl_contact_entry entries[SIZE];

    fill_in(entries);
    entries[3].is_refused = entries[5].is_refused = true;
    entries[2].tls_mode = entries[4].tls_mode = 1;
    entries[1].has_address = entries[4].has_address = false;
    dl_survey *survey = survey_of(entries);
    CHECK_EQUAL(survey->refused, 3);
    CHECK_EQUAL(survey->other_mode, 2);
    CHECK_EQUAL(survey->unaddressed, 1);
    CHECK(!survey->is_whole);
    free(survey);
}

/* The neighbours in the tree are 0 and 1, 0 and 2, 1 and 3, 1 and 4, 2 and 5. */
CHECK_CASE(one_pair_without_a_link_is_found)
{
    dl_contact_entry entries[SIZE];

    for (int rank = 0; rank < SIZE; rank++) {
        fill_in(entries);
        entries[rank].host.stack = 2;
        dl_survey *survey = survey_of(entries);
        CHECK(survey->is_whole && survey->has_stacks && !survey->has_loopback);
        free(survey);
        entries[5].has_loopback = true;
        survey = survey_of(entries);
        CHECK_EQUAL(survey->is_whole, rank != 2 && rank != 5);
        CHECK(survey->has_loopback);
        free(survey);
    }
}

CHECK_CASE(a_failed_allocation_is_reported)
{
    dl_contact_entry entries[SIZE];
    dl_survey *survey = malloc(dl_survey_size(SIZE));
    long number = 0;
    int failures = 0;
    bool has_failed;

    fill_in(entries);
    do {
        dl_check_fail_allocation_at(++number);
        dl_status status = dl_survey_make(survey, entries, SIZE);
        has_failed = dl_check_allocation_failed();
        CHECK(status == DL_OK || has_failed);
        failures += status == DL_NO_MEMORY;
    } while (has_failed);
    /* A map without room for more buckets is only slower. */
    CHECK_EQUAL(failures, 3);
    free(survey);
}
