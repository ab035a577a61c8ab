"""OpenSearch-VL (https://github.com/shawn0728/OpenSearch-VL): questions about pictures, answered with the help of tools."""
