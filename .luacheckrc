-- SPDX-License-Identifier: MIT
std = "lua54"
max_line_length = 100
exclude_files = { "build/**" }

files["spec/**/*_spec.lua"] = { std = "+busted" }

-- Declarations for editors: functions without bodies use none of their parameters.
files["lua/library/**/*.lua"] = { unused_args = false, ignore = { "241" } }
