// A file of measurement records, one JSON object per line. A line is there as a whole or not at
// all: what a failing disk or a dying process left of the last one is taken back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hw/launch/launcher_descriptor.h"
#include "hw/record/measurement.h"

namespace bucketwise {

struct MeasurementLines {
    std::vector<Measurement> records;
    bool torn = false;  // the last line had no end and was left out
};

// Throws InputError for a file that is missing or holds anything else, naming the line.
MeasurementLines read_measurements(const std::string& path);

// As the file has it: what is no UTF-8, as the names of files may be, is made so.
std::string line_of(const Measurement& record);

// Throws InputError unless `path` is a new or empty file in a folder that exists, or `resume` and a
// file that holds something.
void check_measurement_output(const std::string& path, bool resume);

// Removes what follows the last line's end. Does nothing when the file is missing, or when another
// process writes to it.
void drop_torn_line(const std::string& path);

class MeasurementFile {
  public:
    // Creates the file, or goes on after its last whole line, and keeps others from writing to it.
    // Throws std::runtime_error.
    explicit MeasurementFile(std::string path);

    // All of them or none: what one measurement gave stays together. The lines are with the kernel
    // when this returns. Throws std::runtime_error when they cannot be written; the file then ends
    // with the line before them. Also when somebody else has
    // removed or changed the file: what a long run goes on to measure would be lost.
    void append(const std::vector<Measurement>& records);

  private:
    void check_unchanged() const;

    std::string path_;
    Descriptor file_;
    std::int64_t end_ = 0;  // of the last line
};

}  // namespace bucketwise
