// The report of a validation, for people: as Markdown with its pictures beside it, and as one HTML
// file with everything in it.
#pragma once

#include <string>
#include <vector>

#include "calibrate/comparison/step_comparison.h"
#include "calibrate/fit/calibration.h"

namespace bucketwise {

struct Picture {
    std::string name;   // of the files NAME.svg and NAME.png
    std::string title;  // what to look at
    std::string svg;    // the file's text; empty: not drawn
};

struct ValidationReport {
    Comparison comparison;
    Calibration calibration;
    std::string prediction;  // the text of bucketwise predict
    std::vector<Picture> pictures;
    std::vector<std::string> commands;  // that give the same files again, from the measurements on
};

// Both begin with the verdict, the picture it is seen in, and three numbers: what the advice saves,
// how far predictions are off, and how sure that is. What files name is shown as it stands there:
// none of it means anything to Markdown or HTML.
std::string markdown_report(const ValidationReport& report);

// What is only looked up is folded, but for print. Nothing in it is fetched from anywhere; it is as
// readable on a phone and in the dark as on a desk.
std::string html_report(const ValidationReport& report);

}  // namespace bucketwise
