// A file of measurement records, one JSON object per line. A measurement is there as a whole or not
// at all: what a failing disk or a dying process left of the last one is taken back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hw/launch/launcher_descriptor.h"
#include "hw/record/measurement.h"
#include "import/source/byte_source.h"

namespace bucketwise {

struct MeasurementLines {
    std::vector<Measurement> records;
    bool torn = false;  // the last line had no end and was left out
};

// Throws InputError for a file that is missing or holds anything else, naming the line; for a line
// above 64 MiB, and for a file above 1 GiB.
MeasurementLines read_measurements(const std::string& path);
// The same of what is read already; `path` is for messages.
MeasurementLines read_measurements(const ByteSource& source, const std::string& path);

// As the file has it: what is no UTF-8, as the names of files may be, is made so.
std::string line_of(const Measurement& record);

// Throws InputError unless `path` is a new or empty file in a folder that exists, or `resume` and a
// file that is there; and where something else was read from it.
void check_measurement_output(const std::string& path, bool resume);

// Whether an earlier run has left a file before its first line was whole: empty, or with no more
// than a beginning of that line. Who goes on with it begins.
bool is_unbegun(const std::string& path);

class MeasurementFile {
  public:
    // Creates the file, or goes on after its last whole measurement, and keeps others from writing
    // to it. Throws std::runtime_error.
    explicit MeasurementFile(std::string path);
    // A file that this has created does not stay if it is empty.
    ~MeasurementFile();
    MeasurementFile(const MeasurementFile&) = delete;
    MeasurementFile& operator=(const MeasurementFile&) = delete;

    // All of them or none: what one measurement gave stays together. The lines are with the kernel
    // when this returns. Throws std::runtime_error when they cannot be written; the file then ends
    // with the line before them. Also when somebody else has renamed, removed, replaced or changed
    // the file: what a long run goes on to measure would be lost.
    void append(const std::vector<Measurement>& records);

    // --- for who starts the process that appends ---

    // Lets that process write. This one knows the file again, whatever becomes of its name.
    void hand_over();

    // Once it has ended: removes what it left of a measurement that is not whole.
    void take_back();

    [[nodiscard]] bool is_in_place() const;
    // Throws std::runtime_error, which says what became of the file, if it is not.
    void check_in_place() const;

    // The name of the file now, if it holds anything that was measured.
    [[nodiscard]] std::optional<std::string> keeper() const;

  private:
    [[nodiscard]] std::string name_now() const;
    [[nodiscard]] std::string what_became() const;

    std::string path_;
    Descriptor file_;
    bool is_new_ = false;
    std::int64_t end_ = 0;  // of the last line
};

}  // namespace bucketwise
