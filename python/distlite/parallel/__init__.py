# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training; distlite.data_parallel has the public names.

sampler           which samples are whose
gradient_reducer  means of gradients while backward goes on
gradient_buckets  the arrays that travel together
gradient_check    whether all ranks have the same parameters and gradients
"""
