/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "tensor/reduce_table.h"

CHECK_CASE(every_processor_has_the_base)
{
    CHECK(dl_cpu_has(DL_SIMD_BASE));
}

CHECK_CASE(the_widest_is_chosen)
{
    unsetenv("DISTLITE_SIMD");
    dl_simd chosen = dl_cpu_choose();
    CHECK(dl_cpu_has(chosen));
    for (int wider = chosen + 1; wider < DL_SIMD_COUNT; wider++) {
        CHECK(!dl_cpu_has((dl_simd)wider));
    }
}

CHECK_CASE(the_environment_chooses_what_the_processor_has)
{
    static const char *const names[DL_SIMD_COUNT] = {"base", "avx2", "avx512"};

    for (int i = 0; i < DL_SIMD_COUNT; i++) {
        setenv("DISTLITE_SIMD", names[i], 1);
        if (dl_cpu_has((dl_simd)i)) {
            CHECK_EQUAL(dl_cpu_choose(), i);
        }
    }
}

CHECK_CASE(an_unknown_word_falls_back)
{
    setenv("DISTLITE_SIMD", "sse9", 1);
    dl_simd chosen = dl_cpu_choose();
    setenv("DISTLITE_SIMD", "", 1);
    CHECK_EQUAL(chosen, dl_cpu_choose());
}
