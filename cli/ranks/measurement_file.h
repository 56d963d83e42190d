// A file of measurement records, one JSON object per line. A measurement is whole or absent: the
// torn rest of one, from a failing disk or a dying process, is removed.
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

// Throws InputError, which names the line, for a missing file and for other content; for a line
// above 64 MiB, and for a file above 1 GiB.
MeasurementLines read_measurements(const std::string& path);
// The same from a source; `path` is for messages.
MeasurementLines read_measurements(const ByteSource& source, const std::string& path);

// The record's line. Text that is not UTF-8, such as names of files, is made so.
std::string line_of(const Measurement& record);

// Throws InputError unless `path` is a new or empty file in a folder that exists, or an existing
// file to resume; and where it is an input.
void check_measurement_output(const std::string& path, bool resume);

// Whether an earlier run ended before the first line of the file was whole. Resuming it begins
// anew.
bool is_unbegun(const std::string& path);

class MeasurementFile {
  public:
    // Creates the file, or continues after its last whole measurement, and locks it. Throws
    // std::runtime_error.
    explicit MeasurementFile(std::string path);
    // Removes a new file that stayed empty.
    ~MeasurementFile();
    MeasurementFile(const MeasurementFile&) = delete;
    MeasurementFile& operator=(const MeasurementFile&) = delete;

    // Appends all records of a measurement or none. The kernel has the lines when this returns.
    // Throws std::runtime_error where they cannot be written, and where others have renamed,
    // removed, replaced or changed the file, as further records would be lost.
    void append(const std::vector<Measurement>& records);

    // --- for the launcher of the process that appends ---

    // Unlocks the file for that process. This one recognises the file by any name.
    void hand_over();

    // Removes the torn rest of a measurement once that process has ended.
    void take_back();

    [[nodiscard]] bool is_in_place() const;
    // Throws std::runtime_error, with the fate of the file, if it is not.
    void check_in_place() const;

    // The file's current name, if it holds any measurement.
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
