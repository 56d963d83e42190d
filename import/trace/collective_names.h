// Names of collectives and of their elements' types, as PyTorch writes them.
#pragma once

#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

namespace bucketwise {

// Takes c10d's name of a dtype: "Float", "Half".
inline std::int64_t bytes_of_dtype(std::string_view dtype) {
    return dtype == "Double" || dtype == "Long"                         ? 8
           : dtype == "Half" || dtype == "BFloat16" || dtype == "Short" ? 2
           : dtype == "Byte" || dtype == "Char" || dtype == "Bool"      ? 1
                                                                        : 4;
}

// c10d's name of a dtype by C++'s name of the type; empty: unknown.
inline std::string dtype_of_type(std::string_view type) {
    for (const std::string_view dtype : {"Half", "BFloat16", "Float8_e4m3fn", "Float8_e5m2"}) {
        if (type.starts_with("c10::") && type.substr(5) == dtype) {
            return std::string(dtype);
        }
    }
    return type == "float"                        ? "Float"
           : type == "double"                     ? "Double"
           : type == "long" || type == "long int" ? "Long"
           : type == "int"                        ? "Int"
           : type == "unsigned char"              ? "Byte"
                                                  : "";
}

// "allreduce" for "c10d::allreduce_", "nccl:all_reduce" and "allreduce".
inline std::string plain_name(std::string_view name) {
    std::string plain;
    for (const char c : name.substr(name.rfind(':') + 1)) {  // npos + 1 is 0
        if (c != '_') {
            plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        }
    }
    return plain;
}

// By its plain name.
inline bool moves_data(std::string_view collective) {
    for (const std::string_view other : {"wait", "barrier", "monitoredbarrier", "init", "finalize",
                                         "", "startcoalescing", "endcoalescing"}) {
        if (collective == other) {
            return false;
        }
    }
    return true;
}

}  // namespace bucketwise
