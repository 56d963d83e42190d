// An export of Nsight Systems as SQLite opens it: read-only, and distrusted. A database may hold
// views that never end, pages that lead in circles and texts where numbers should be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace bucketwise {

// Called now and then with how many rows are read, and how many there are or may be.
using RowProgress = std::function<void(std::int64_t done, std::int64_t all)>;

class ExportDatabase;

struct FinalizeStatement {
    void operator()(sqlite3_stmt* statement) const;
};
using SqlStatement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

// The rows of a table, one after another, as they are stored.
class ExportRows {
  public:
    // False at the end. Throws InputError where the table is damaged.
    bool next();

    // By the place among the columns that were asked for. Nothing: the table has no such column, or
    // the row has no number there.
    [[nodiscard]] std::optional<std::int64_t> number(std::size_t column) const;
    // Empty where there is none; until the next row.
    [[nodiscard]] std::string_view text(std::size_t column) const;
    // The same for a text or a blob.
    [[nodiscard]] std::string_view bytes(std::size_t column) const;

    // Throws InputError for what is no number.
    [[nodiscard]] std::int64_t required_number(std::size_t column) const;
    // Where it stands: "/CUPTI_ACTIVITY_KIND_KERNEL/17/start".
    [[nodiscard]] std::string place(std::size_t column) const;
    [[nodiscard]] std::int64_t row() const { return row_; }

  private:
    friend class ExportDatabase;
    ExportRows(ExportDatabase& database, std::string table, std::span<const char* const> columns);

    ExportDatabase& database_;
    std::string table_;
    std::vector<std::string> columns_;
    SqlStatement statement_;
    std::int64_t row_ = -1;
};

class ExportDatabase {
  public:
    // Never written to, nor locked. Throws InputError for what is no database, and for one that
    // another program has not finished writing.
    static ExportDatabase of_file(const std::string& path);

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] bool has(std::string_view table) const;
    [[nodiscard]] const std::vector<std::string>& tables() const { return tables_; }

    // The columns that a table of this version has; of the others each row has none. Without the
    // table there are no rows.
    ExportRows rows(const std::string& table, std::span<const char* const> columns);

    void report_to(RowProgress progress) { progress_ = std::move(progress); }
    // For progress: rows() of these tables are read.
    void expect_rows_of(std::span<const char* const> tables);

  private:
    friend class ExportRows;
    struct Close {
        void operator()(sqlite3* handle) const;
    };

    ExportDatabase(sqlite3* handle, std::string name, std::uint64_t bytes);
    void distrust();
    void find_tables();
    [[nodiscard]] std::vector<std::string> columns_of(const std::string& table);
    void count_row();
    [[nodiscard]] SqlStatement prepared(const std::string& query, const std::string& table) const;
    [[noreturn]] void fail(const std::string& table) const;

    std::string name_;
    std::int64_t most_rows_;  // that fit into a database of this size
    // Steps of work left to SQLite, which holds the address.
    std::unique_ptr<std::int64_t> instructions_left_;
    std::unique_ptr<sqlite3, Close> handle_;
    std::vector<std::string> tables_;
    RowProgress progress_;
    std::int64_t rows_done_ = 0;
    std::int64_t rows_expected_ = 0;
};

}  // namespace bucketwise
