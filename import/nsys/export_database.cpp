#include "import/nsys/export_database.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sqlite3.h>

#include "import/source/plain_text.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// A cell has at least a pointer to it, two lengths and a type.
constexpr std::uint64_t shortest_row_bytes = 4;
// Far more than all that is asked of a sound database takes; SQLite counts so many at once.
constexpr std::int64_t instructions_for_schema = 2'000'000;
constexpr std::int64_t instructions_a_row = 200;
constexpr std::int64_t instructions_a_look = 1'000;

constexpr std::size_t header_bytes = 100;

// Without a lock around every value.
constexpr int of_one_thread = SQLITE_OPEN_NOMUTEX;

constexpr const char* what_is_expected =
    "a database of Nsight Systems (nsys export --type sqlite REPORT)";

std::string sql_name(std::string_view name) {
    std::string text = "\"";
    for (const char c : name) {
        text += c;
        if (c == '"') {
            text += c;
        }
    }
    return text + "\"";
}

// A path may have any characters. Immutable: neither locked nor recovered, so that nothing is ever
// written beside it.
std::string uri_of(const std::string& path) {
    std::string uri = "file:";
    for (const char c : path) {
        uri += c == '%' || c == '?' || c == '#' ? fmt::format("%{:02X}", c) : std::string(1, c);
    }
    return uri + "?mode=ro&immutable=1";
}

// SQLite takes a file whose last pages are missing if nothing that is read lies there. The header
// counts the pages.
void refuse_cut_off(const std::string& name, std::string_view header, std::uint64_t bytes) {
    const auto number = [&](std::size_t at, std::size_t size) {
        std::uint64_t value = 0;
        for (const char c : header.substr(at, size)) {
            value = value << 8U | static_cast<unsigned char>(c);
        }
        return value;
    };
    if (header.size() < header_bytes || !header.starts_with("SQLite format 3")) {
        return;  // SQLite says what it is
    }
    const std::uint64_t page_bytes = number(16, 2) == 1 ? 65'536 : number(16, 2);
    const bool is_counted = number(24, 4) == number(92, 4);  // by the version that wrote it last
    if (is_counted && number(28, 4) * page_bytes > bytes) {
        throw InputError(name, "", fmt::format("{} bytes", number(28, 4) * page_bytes),
                         fmt::format("{}, as if it was cut off", bytes));
    }
}

std::string header_of_file(const std::string& path) {
    std::string header(header_bytes, '\0');
    std::ifstream stream(path, std::ios::binary);
    stream.read(header.data(), static_cast<std::streamsize>(header.size()));
    header.resize(static_cast<std::size_t>(stream.gcount()));
    return header;
}

bool has_content(const std::string& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    return !error && size > 0;
}

// Changes in such a file are not in the database yet, or must be undone.
void refuse_unfinished(const std::string& path) {
    for (const char* const suffix : {"-wal", "-journal"}) {
        if (has_content(path + suffix)) {
            throw InputError(path, "",
                             "an export that nobody is writing (sqlite3 FILE 'PRAGMA "
                             "journal_mode=DELETE' finishes it)",
                             "one with " + path + suffix + " beside it");
        }
    }
}

}  // namespace

// --- rows ---

void FinalizeStatement::operator()(sqlite3_stmt* statement) const {
    sqlite3_finalize(statement);
}

ExportRows::ExportRows(ExportDatabase& database, std::string table,
                       std::span<const char* const> columns)
    : database_(database), table_(std::move(table)), columns_(columns.begin(), columns.end()) {
    if (!database_.has(table_)) {
        return;
    }
    const std::vector<std::string> there = database_.columns_of(table_);
    std::string list;
    for (const std::string& column : columns_) {
        const bool found = std::ranges::find(there, column) != there.end();
        list += (list.empty() ? "" : ", ") + (found ? sql_name(column) : "NULL");
    }
    const std::string query = "SELECT " + list + " FROM main." + sql_name(table_) + " NOT INDEXED";
    statement_ = database_.prepared(query, table_);
}

bool ExportRows::next() {
    if (statement_ == nullptr) {
        return false;
    }
    const int result = sqlite3_step(statement_.get());
    if (result == SQLITE_DONE) {
        statement_.reset();
        return false;
    }
    if (result != SQLITE_ROW) {
        database_.fail(table_);
    }
    database_.count_row();
    ++row_;
    return true;
}

std::optional<std::int64_t> ExportRows::number(std::size_t column) const {
    const int place = static_cast<int>(column);
    switch (sqlite3_column_type(statement_.get(), place)) {
        case SQLITE_INTEGER:
            return sqlite3_column_int64(statement_.get(), place);
        case SQLITE_FLOAT: {
            constexpr double most = 9e15;  // beyond, not every whole number is there
            const double value = sqlite3_column_double(statement_.get(), place);
            return std::abs(value) <= most ? std::optional(std::llround(value)) : std::nullopt;
        }
        default:
            return std::nullopt;
    }
}

std::string_view ExportRows::text(std::size_t column) const {
    return sqlite3_column_type(statement_.get(), static_cast<int>(column)) == SQLITE_TEXT
               ? bytes(column)
               : std::string_view();
}

std::string_view ExportRows::bytes(std::size_t column) const {
    const int place = static_cast<int>(column);
    const int type = sqlite3_column_type(statement_.get(), place);
    if (type != SQLITE_TEXT && type != SQLITE_BLOB) {
        return {};
    }
    const void* const data = sqlite3_column_blob(statement_.get(), place);
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), place));
    return data == nullptr ? std::string_view()
                           : std::string_view(static_cast<const char*>(data), size);
}

std::int64_t ExportRows::required_number(std::size_t column) const {
    const std::optional<std::int64_t> value = number(column);
    if (!value) {
        const std::string_view other = bytes(column);
        throw InputError(database_.name(), place(column), "a whole number",
                         other.empty() ? "none" : "\"" + plain_text(std::string(other), 40) + "\"");
    }
    return *value;
}

std::string ExportRows::place(std::size_t column) const {
    return fmt::format("/{}/{}/{}", table_, row_, columns_[column]);
}

// --- the database ---

void ExportDatabase::Close::operator()(sqlite3* handle) const {
    sqlite3_close_v2(handle);
}

ExportDatabase::ExportDatabase(sqlite3* handle, std::string name, std::uint64_t bytes)
    : name_(std::move(name)),
      most_rows_(static_cast<std::int64_t>(bytes / shortest_row_bytes)),
      instructions_left_(std::make_unique<std::int64_t>(
          (instructions_for_schema + instructions_a_row * most_rows_) / instructions_a_look)),
      handle_(handle) {}

ExportDatabase ExportDatabase::of_file(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
        throw InputError(path, "", what_is_expected,
                         std::filesystem::exists(path, error) ? "no regular file" : "no such file");
    }
    refuse_unfinished(path);
    const std::uint64_t bytes = std::filesystem::file_size(path, error);
    refuse_cut_off(path, header_of_file(path), bytes);
    sqlite3* handle = nullptr;
    const int result =
        sqlite3_open_v2(uri_of(path).c_str(), &handle,
                        SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | of_one_thread, nullptr);
    ExportDatabase database(handle, path, bytes);
    if (result != SQLITE_OK) {
        database.fail("");
    }
    database.distrust();
    database.find_tables();
    return database;
}

// Switches off all that a schema may do by itself, and bounds texts and rows.
void ExportDatabase::distrust() {
    sqlite3* const handle = handle_.get();
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    for (const int option : {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_TRIGGER,
                             SQLITE_DBCONFIG_ENABLE_VIEW, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION}) {
        sqlite3_db_config(handle, option, 0, nullptr);
    }
    constexpr int longest_row_bytes = 64'000'000;
    constexpr int longest_query_bytes = 100'000;
    constexpr int most_columns = 500;
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, longest_row_bytes);
    sqlite3_limit(handle, SQLITE_LIMIT_SQL_LENGTH, longest_query_bytes);
    sqlite3_limit(handle, SQLITE_LIMIT_COLUMN, most_columns);
    sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_progress_handler(
        handle, instructions_a_look,
        [](void* left) { return --*static_cast<std::int64_t*>(left) < 0 ? 1 : 0; },
        instructions_left_.get());
    sqlite3_exec(handle, "PRAGMA cell_size_check=ON; PRAGMA query_only=ON;", nullptr, nullptr,
                 nullptr);
}

void ExportDatabase::find_tables() {
    // Virtual tables have no page of their own.
    constexpr const char* query =
        "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0";
    const SqlStatement tables = prepared(query, "");
    constexpr std::size_t most_tables = 10'000;
    int result = SQLITE_ROW;
    while ((result = sqlite3_step(tables.get())) == SQLITE_ROW) {
        const auto* const text = sqlite3_column_text(tables.get(), 0);
        if (text != nullptr && tables_.size() < most_tables) {
            // SQLite's characters are unsigned.
            tables_.emplace_back(reinterpret_cast<const char*>(text));
        }
    }
    if (result != SQLITE_DONE) {
        fail("");
    }
}

bool ExportDatabase::has(std::string_view table) const {
    return std::ranges::find(tables_, table) != tables_.end();
}

ExportRows ExportDatabase::rows(const std::string& table, std::span<const char* const> columns) {
    return ExportRows(*this, table, columns);
}

// Numbers of rows rise, so the last one is about how many there are.
void ExportDatabase::expect_rows_of(std::span<const char* const> tables) {
    for (const char* const table : tables) {
        if (has(table)) {
            const SqlStatement last =
                prepared(std::string("SELECT max(rowid) FROM main.") + sql_name(table), table);
            rows_expected_ +=
                sqlite3_step(last.get()) == SQLITE_ROW
                    ? std::clamp<std::int64_t>(sqlite3_column_int64(last.get(), 0), 0, most_rows_)
                    : 0;
        }
    }
}

// Without those that an expression makes.
std::vector<std::string> ExportDatabase::columns_of(const std::string& table) {
    const std::string query = "PRAGMA main.table_info(" + sql_name(table) + ")";
    const SqlStatement info = prepared(query, table);
    std::vector<std::string> columns;
    while (sqlite3_step(info.get()) == SQLITE_ROW) {
        const auto* const text = sqlite3_column_text(info.get(), 1);
        if (text != nullptr) {
            columns.emplace_back(reinterpret_cast<const char*>(text));
        }
    }
    return columns;
}

void ExportDatabase::count_row() {
    constexpr std::int64_t rows_between_reports = 50'000;
    if (++rows_done_ % rows_between_reports == 0 && progress_) {
        progress_(rows_done_, rows_expected_);
    }
}

SqlStatement ExportDatabase::prepared(const std::string& query, const std::string& table) const {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(handle_.get(), query.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
        fail(table);
    }
    return SqlStatement(statement);
}

void ExportDatabase::fail(const std::string& table) const {
    const std::string place = table.empty() ? "" : "/" + table;
    if (sqlite3_errcode(handle_.get()) == SQLITE_INTERRUPT) {
        // Pages that lead to one another in circles have rows without end.
        throw InputError(name_, place, "as many rows as fit into the file", "more");
    }
    constexpr std::size_t longest = 200;
    throw InputError(name_, place, what_is_expected,
                     plain_text(sqlite3_errmsg(handle_.get()), longest));
}

}  // namespace bucketwise
