"""Which functions of Spark a condition on records may call, and why not the others: each by its name.

A group of Spark's documentation says what a function is about, not what it does: ``rand`` is one of numbers. So a
release of Spark may add to a group what reads more than the record. What is in neither table here is refused until
somebody has looked at it, and ``tests/spark/test_expression.py`` fails as long as the pinned Spark has any such
function.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Refusal(StrEnum):
    """Why a function may not be called, as the condition's author reads it."""

    ANOTHER_ANSWER = "it has another result at each evaluation"
    MOMENT = "it depends on when it is evaluated: write the time that you mean"
    SESSION = "it reveals something about the job, its user or its session"
    JAVA = "it calls Java by reflection"
    FILES = "it reveals something about files, or needs a file or a module in addition to Spark"
    ERRORS = "it ends the search with an error"
    KEYS = "it takes a key, which everybody could read in the spec"
    SEVERAL = "it combines several records: an aggregate or a window function"
    ROWS = "it produces rows or windows, not a value"
    XML = "it parses XML, which may refer to other documents"
    NOT_NEEDED = "no condition on a record has needed it, so it was not reviewed"


_ALLOWED: Final[Mapping[str, str]] = {
    "CSV": """
        from_csv schema_of_csv to_csv
    """,
    "JSON": """
        from_json get_json_object json_array_length json_object_keys schema_of_json to_json
    """,
    "URLs": """
        parse_url try_parse_url try_url_decode url_decode url_encode
    """,
    "arrays": """
        array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
        array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_union
        arrays_overlap arrays_zip flatten get sequence slice sort_array
    """,
    "bits": """
        & << >> >>> ^ bit_count bit_get getbit shiftleft shiftright shiftrightunsigned | ~
    """,
    "collections": """
        cardinality concat element_at reverse size try_element_at
    """,
    "comparisons": """
        ! < <= <=> = == > >= and equal_null ilike in isnan isnotnull isnull like not or regexp regexp_like rlike
    """,
    "conditions": """
        between coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull
    """,
    "conversions": """
        bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint
    """,
    "dates and times": """
        add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc
        dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime
        from_utc_timestamp hour last_day make_date make_dt_interval make_interval make_time make_timestamp
        make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname months_between next_day
        quarter second time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
        time_to_millis time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_seconds to_date
        to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc
        try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time
        try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year
    """,
    "hashes": """
        crc32 hash md5 sha sha1 sha2 xxhash64
    """,
    "lambdas": """
        aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys
        transform_values zip_with
    """,
    "maps": """
        map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map
    """,
    "numbers": """
        % * + - / abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc
        degrees div e exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi
        pmod positive pow power radians rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod
        try_multiply try_subtract unhex width_bucket
    """,
    "operators": """
        != <> case ||
    """,
    "structs": """
        named_struct struct
    """,
    "texts": """
        ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws contains
        decode elt encode endswith find_in_set format_number format_string initcap instr is_valid_utf8 lcase left
        len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8 mask octet_length overlay position
        printf quote regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr repeat
        replace right rpad rtrim sentences soundex space split split_part startswith substr substring
        substring_index to_binary to_char to_number to_varchar translate trim try_to_binary try_to_number
        try_validate_utf8 ucase unbase64 upper validate_utf8
    """,
    "variants": """
        is_valid_variant is_variant_null parse_json schema_of_variant to_variant_object try_parse_json
        try_variant_get variant_get
    """,
}
"""By what they are about."""

ALLOWED: Final = frozenset(name for names in _ALLOWED.values() for name in names.split())
"""They read their arguments and nothing else, and have the same answer each time. One that is a time without arguments
(``unix_timestamp``) is found where the condition is understood."""

_REFUSED: Final[Mapping[Refusal, str]] = {
    Refusal.ANOTHER_ANSWER: """
        monotonically_increasing_id rand randn random randstr shuffle uniform uuid
    """,
    Refusal.MOMENT: """
        curdate current_date current_time current_timestamp localtimestamp now
    """,
    Refusal.SESSION: """
        current_catalog current_database current_path current_schema current_timezone current_user session_user
        spark_partition_id user version
    """,
    Refusal.JAVA: """
        java_method reflect try_reflect
    """,
    Refusal.FILES: """
        from_avro from_protobuf input_file_block_length input_file_block_start input_file_name schema_of_avro
        to_avro to_protobuf
    """,
    Refusal.ERRORS: """
        assert_true raise_error
    """,
    Refusal.KEYS: """
        aes_decrypt aes_encrypt try_aes_decrypt
    """,
    Refusal.SEVERAL: """
        any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
        approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg
        bool_and bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp
        cume_dist dense_rank every first first_value grouping grouping_id histogram_numeric hll_sketch_agg
        hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
        kll_sketch_agg_double kll_sketch_agg_float kurtosis lag last last_value lead listagg max max_by mean measure
        median min min_by mode nth_value ntile percent_rank percentile percentile_approx percentile_cont
        percentile_disc rank regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
        regr_syy row_number schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum
        theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
        tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
        tuple_union_agg_integer var_pop var_samp variance
    """,
    Refusal.ROWS: """
        collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer
        python_worker_logs range session_window sql_keywords stack variant_explode variant_explode_outer window
        window_time
    """,
    Refusal.XML: """
        from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number
        xpath_short xpath_string
    """,
    Refusal.NOT_NEEDED: """
        approx_top_k_estimate bitmap_bit_position bitmap_bucket_number bitmap_count hll_sketch_estimate hll_union
        kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
        kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
        kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double
        kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float
        st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid theta_difference theta_intersection
        theta_sketch_estimate theta_union tuple_difference_double tuple_difference_integer
        tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double
        tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
        tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
        tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_double
        tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof vector_avg
        vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
    """,
}

REFUSED: Final[Mapping[str, Refusal]] = {name: why for why, names in _REFUSED.items() for name in names.split()}


def why_not(name: str) -> str | None:
    """Why a condition may not call Spark's function of this name; ``None``: it may.

    ``name``: in whatever case, as Spark takes it.
    """
    if name.lower() in ALLOWED:
        return None
    return REFUSED.get(name.lower(), "nobody has judged yet whether it reads more than the record")
