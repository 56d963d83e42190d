// An export of Nsight Systems made from a known step: what nsys would have recorded of what the
// written Kineto trace shows (tests/import/replay/written_trace.h), in the schemas it has had.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sqlite3.h>
#include <nlohmann/json.hpp>

#include "sim/base/json.h"

namespace bucketwise {

enum class Payloads { none, json, binary };

struct ExportForm {
    bool autograd = true;           // ranges of operations
    bool shapes = true;             // with the sizes of their inputs
    bool text_ids = false;          // texts by number, as newer versions keep them
    bool steps = true;              // ProfilerStep#N
    std::string step_name = {};     // another name for it; "#" becomes the number
    std::string forward_name = {};  // of a range around DistributedDataParallel.forward
    bool optimizer_ranges = true;   // Optimizer.step#SGD.step
    Payloads payloads = Payloads::json;
    bool old_schema = false;    // no jsonText, eventClass, globalPid of kernels or mangledName
    std::int64_t shift_ns = 0;  // of all times
    double stretch = 1;         // the same, at last
};

// A database in memory.
class WrittenDatabase {
  public:
    WrittenDatabase() {
        if (sqlite3_open(":memory:", &handle_) != SQLITE_OK) {
            throw std::runtime_error("no database");
        }
    }
    ~WrittenDatabase() { sqlite3_close(handle_); }
    WrittenDatabase(const WrittenDatabase&) = delete;
    WrittenDatabase& operator=(const WrittenDatabase&) = delete;

    void run(const std::string& statements) {
        char* message = nullptr;
        if (sqlite3_exec(handle_, statements.c_str(), nullptr, nullptr, &message) != SQLITE_OK) {
            const std::string text = message == nullptr ? "" : message;
            sqlite3_free(message);
            throw std::runtime_error(text + " in " + statements);
        }
    }

    // Numbers, texts and null; a text in an array is a blob.
    void insert(const std::string& table, const std::vector<std::pair<std::string, Json>>& values) {
        std::string columns;
        std::string places;
        for (const auto& [column, value] : values) {
            columns += (columns.empty() ? "\"" : ", \"") + column + "\"";
            places += places.empty() ? "?" : ", ?";
        }
        std::string query = "INSERT INTO ";
        query += table + " (" + columns + ") VALUES (" + places + ")";
        sqlite3_stmt*& statement = statements_[query];
        if (statement == nullptr) {
            sqlite3_prepare_v2(handle_, query.c_str(), -1, &statement, nullptr);
        }
        if (statement == nullptr) {
            throw std::runtime_error(sqlite3_errmsg(handle_));
        }
        int place = 0;
        for (const auto& [column, value] : values) {
            bind(statement, ++place, value);
        }
        sqlite3_step(statement);
        sqlite3_reset(statement);
    }

    // As a file of it.
    std::string bytes() {
        for (const auto& [query, statement] : statements_) {
            sqlite3_finalize(statement);
        }
        statements_.clear();
        sqlite3_int64 size = 0;
        unsigned char* const copy = sqlite3_serialize(handle_, "main", &size, 0);
        std::string text(reinterpret_cast<const char*>(copy), static_cast<std::size_t>(size));
        sqlite3_free(copy);
        return text;
    }

  private:
    static void bind(sqlite3_stmt* statement, int place, const Json& value) {
        if (value.is_array()) {
            const auto blob = value[0].get<std::vector<unsigned char>>();
            sqlite3_bind_blob(statement, place, blob.data(), static_cast<int>(blob.size()),
                              SQLITE_TRANSIENT);
        } else if (value.is_string()) {
            const auto text = value.get<std::string>();
            sqlite3_bind_text(statement, place, text.c_str(), static_cast<int>(text.size()),
                              SQLITE_TRANSIENT);
        } else if (value.is_number_float()) {
            sqlite3_bind_double(statement, place, value.get<double>());
        } else if (value.is_number()) {
            sqlite3_bind_int64(statement, place, value.get<std::int64_t>());
        } else {
            sqlite3_bind_null(statement, place);
        }
    }

    sqlite3* handle_ = nullptr;
    std::map<std::string, sqlite3_stmt*> statements_;
};

class WrittenExport {
  public:
    explicit WrittenExport(ExportForm form = {}) : form_(std::move(form)) {
        const std::string work =
            "(start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, ";
        const std::string owner = form_.old_schema ? "" : "globalPid INT, ";
        database_.run(
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
            "CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT);"
            "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA Test'), (1, 'NVIDIA Test');"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL " +
            work + owner + "demangledName INT, shortName INT" +
            (form_.old_schema ? "" : ", mangledName INT") +
            ");"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY " +
            work + owner + "bytes INT, copyKind INT);" +
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, " +
            (form_.old_schema ? "" : "eventClass INT, ") +
            "globalTid INT, correlationId INT, nameId INT, returnValue INT);"
            "CREATE TABLE NVTX_EVENTS (start INT NOT NULL, end INT, eventType INT, rangeId INT, "
            "text TEXT, globalTid INT, textId INT, domainId INT" +
            (form_.old_schema ? "" : ", jsonTextId INT, jsonText TEXT, binaryData TEXT") + ");");
        if (form_.payloads == Payloads::binary) {
            database_.run(
                "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INT, schemaId INT, idx INT, "
                "type INT, name TEXT, offset INT);"
                "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES "
                "(1, 100, 0, 18, 'NCCL communicator ID', NULL),"
                "(1, 100, 1, 22, 'Message size [bytes]', 8),"
                "(1, 200, 0, 18, 'NCCL communicator ID', NULL),"
                "(1, 200, 1, 5, 'No. of ranks', 8), (1, 200, 2, 5, 'Rank', 12);");
        }
    }

    WrittenDatabase& database() { return database_; }
    std::string bytes() { return database_.bytes(); }

    // Adds the events of a process of this number and device, as Kineto writes them.
    void add(const Json& events, std::int64_t process, std::int64_t device) {
        process_ = process;
        device_ = device;
        for (const Json& event : events) {
            add_event(event);
        }
    }

    void add_range(const std::string& text, std::int64_t thread, std::int64_t begin_ns,
                   std::int64_t end_ns, const Json& payload = {}) {
        std::vector<std::pair<std::string, Json>> values{{"start", begin_ns},
                                                         {"end", end_ns},
                                                         {"eventType", 59},
                                                         {"globalTid", global_process() + thread}};
        values.emplace_back(form_.text_ids ? "textId" : "text",
                            form_.text_ids ? Json(string_id(text)) : Json(text));
        if (!form_.old_schema && !payload.is_null()) {
            add_payload(payload, values);
        }
        database_.insert("NVTX_EVENTS", values);
    }

    std::int64_t string_id(const std::string& text) {
        const auto [found, is_new] = ids_.emplace(text, static_cast<std::int64_t>(ids_.size()) + 1);
        if (is_new) {
            database_.insert("StringIds", {{"id", found->second}, {"value", text}});
        }
        return found->second;
    }

  private:
    [[nodiscard]] std::int64_t global_process() const { return process_ << 24; }

    [[nodiscard]] std::int64_t ns(double us) const {
        return form_.shift_ns + std::llround(us * 1e3 * form_.stretch);
    }

    // Those that NCCL's 2.27 has.
    void add_payload(const Json& payload, std::vector<std::pair<std::string, Json>>& values) {
        if (form_.payloads == Payloads::json) {
            values.emplace_back(
                form_.text_ids ? "jsonTextId" : "jsonText",
                form_.text_ids ? Json(string_id(payload.dump())) : Json(payload.dump()));
        } else if (form_.payloads == Payloads::binary) {
            const bool calls = payload.contains("Message size [bytes]");
            std::vector<unsigned char> blob(32 + 24);
            const auto put = [&](std::size_t at, std::uint64_t value, std::size_t size) {
                for (std::size_t i = 0; i < size; ++i) {
                    blob[at + i] = static_cast<unsigned char>(value >> (8 * i));
                }
            };
            put(0, 1, 4);
            put(8, calls ? 100 : 200, 4);
            put(16, 24, 8);
            put(24, 56, 8);
            put(32, payload["NCCL communicator ID"].get<std::uint64_t>(), 8);
            if (calls) {
                put(40, payload["Message size [bytes]"].get<std::uint64_t>(), 8);
            } else {
                put(40, payload["No. of ranks"].get<std::uint64_t>(), 4);
                put(44, payload["Rank"].get<std::uint64_t>(), 4);
            }
            values.emplace_back("binaryData", Json::array({blob}));
        }
    }

    void add_event(const Json& event) {
        const auto category = event["cat"].get<std::string>();
        const std::int64_t begin = ns(event["ts"].get<double>());
        const std::int64_t end = ns(event["ts"].get<double>() + event["dur"].get<double>());
        if (category == "kernel" || category == "gpu_memcpy") {
            add_work(event, category == "kernel", begin, end);
        } else if (category == "cuda_runtime") {
            const std::string name = event["name"].get<std::string>() + "_v7000";
            std::vector<std::pair<std::string, Json>> values{
                {"start", begin},
                {"end", end},
                {"globalTid", global_process() + event["tid"].get<std::int64_t>()},
                {"correlationId", event["args"].value("correlation", std::int64_t{0})},
                {"nameId", string_id(name)}};
            if (!form_.old_schema) {
                values.emplace_back("eventClass", 0);
            }
            database_.insert("CUPTI_ACTIVITY_KIND_RUNTIME", values);
        } else {
            add_host_range(event, begin, end);
        }
    }

    void add_work(const Json& event, bool is_kernel, std::int64_t begin, std::int64_t end) {
        const Json& args = event["args"];
        const auto name = event["name"].get<std::string>();
        std::vector<std::pair<std::string, Json>> values{{"start", begin},
                                                         {"end", end},
                                                         {"deviceId", device_},
                                                         {"contextId", 1},
                                                         {"streamId", args["stream"]},
                                                         {"correlationId", args["correlation"]}};
        if (!form_.old_schema) {
            values.emplace_back("globalPid", global_process());
        }
        if (is_kernel) {
            values.emplace_back("demangledName", string_id(name));
            values.emplace_back("shortName", string_id(name.substr(0, name.find('('))));
        } else {
            values.emplace_back("bytes", args["bytes"]);
            values.emplace_back("copyKind", name.find("DtoD") != std::string::npos   ? 8
                                            : name.find("DtoH") != std::string::npos ? 2
                                                                                     : 1);
        }
        database_.insert(is_kernel ? "CUPTI_ACTIVITY_KIND_KERNEL" : "CUPTI_ACTIVITY_KIND_MEMCPY",
                         values);
    }

    void add_host_range(const Json& event, std::int64_t begin, std::int64_t end) {
        const auto name = event["name"].get<std::string>();
        const auto thread = event["tid"].get<std::int64_t>();
        const Json& args = event["args"];
        if (name == "record_param_comms" && args.contains("In msg nelems")) {
            add_call(args, thread, begin);
        }
        if (name == "DistributedDataParallel.forward" && !form_.forward_name.empty()) {
            add_range(form_.forward_name, thread, begin, end);
        }
        if (name.starts_with("ProfilerStep")) {
            if (form_.steps) {
                const std::string number = name.substr(name.find('#') + 1);
                std::string text = form_.step_name.empty() ? name : form_.step_name;
                if (const auto at = text.find('#'); at != std::string::npos && text != name) {
                    text.replace(at, 1, number);
                }
                add_range(text, thread, begin, end);
            }
        } else if (name.starts_with("Optimizer.step")) {
            if (form_.optimizer_ranges) {
                add_range(operation_text(name, {}), thread, begin, end);
            }
        } else if (form_.autograd) {
            Json dims = args.value("Input Dims", Json());
            if (args.contains("In msg nelems")) {
                dims = Json::array({Json::array({args["In msg nelems"]}), Json::array()});
            }
            add_range(operation_text(name, dims), thread, begin, end);
        }
    }

    // As NCCL's own range, of a communicator for each group.
    void add_call(const Json& args, std::int64_t thread, std::int64_t begin) {
        if (form_.payloads == Payloads::none) {
            return;
        }
        std::uint64_t communicator = 0xabcd;
        for (const char c : args["Process Group Name"].get<std::string>()) {
            communicator = communicator * 31 + static_cast<unsigned char>(c);
        }
        if (communicators_.emplace(std::pair(process_, communicator), 0).second) {
            add_range("ncclCommInitRank", thread, begin - 1'950, begin - 1'940,
                      {{"NCCL communicator ID", communicator},
                       {"No. of ranks", args["Group size"]},
                       {"Rank", process_ % 10}});
        }
        const std::int64_t size = args["dtype"] == "Float" ? 4 : 2;
        // Before the launch, which may be as soon as the operation begins.
        add_range("ncclAllReduce", thread, begin - 1'900, begin - 1'800,
                  {{"NCCL communicator ID", communicator},
                   {"Message size [bytes]", size * args["In msg nelems"].get<std::int64_t>()},
                   {"Reduction operation", "Sum"}});
    }

    // As getNvtxStr() of PyTorch puts it together.
    std::string operation_text(const std::string& name, const Json& dims) {
        std::string text = name + ", seq = 3, op_id = " + std::to_string(++operation_);
        if (form_.shapes && !dims.is_null()) {
            std::string sizes;
            for (const Json& shape : dims) {
                const Json flat = !shape.empty() && shape[0].is_array() ? shape[0] : shape;
                std::string numbers;
                for (const Json& size : flat) {
                    numbers += (numbers.empty() ? "" : ", ") + size.dump();
                }
                sizes += (sizes.empty() ? "[" : ", [") + numbers + "]";
            }
            text += ", sizes = [" + sizes + "], input_op_ids = [(0,-1), (3,0)]";
        }
        return text;
    }

    ExportForm form_;
    WrittenDatabase database_;
    std::map<std::string, std::int64_t> ids_;
    std::map<std::pair<std::int64_t, std::uint64_t>, int> communicators_;
    std::int64_t process_ = 0;
    std::int64_t device_ = 0;
    std::int64_t operation_ = 0;
};

}  // namespace bucketwise
